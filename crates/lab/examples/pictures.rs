//! Draws the shortest story of each rung that goes wrong into `docs/how-we-know/lab`, or into the folder that is given.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use leasehold_lab::ladder::check::{RungResult, find_out};
use leasehold_lab::ladder::rungs;
use leasehold_lab::ladder::show::svg;

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-we-know/lab");
    let folder = env::args_os().nth(1).map_or(docs, PathBuf::from);
    fs::create_dir_all(&folder)?;
    for rung in rungs::all().iter().filter(|rung| rung.breaks.is_some()) {
        if let RungResult::Broken(trace) = find_out(rung) {
            fs::write(folder.join(format!("{}.svg", rung.name)), svg(&trace))?;
        }
    }
    Ok(())
}
