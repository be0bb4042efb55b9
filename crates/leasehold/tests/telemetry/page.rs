//! Compares `docs/reference/telemetry.md` with the sources. The page must list exactly the telemetry of the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words in backticks.
fn quoted(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// The cells of the rows of the page's table below this heading.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = file("../../docs/reference/telemetry.md");
    let (_, below) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no {heading}"));
    let lines = below.lines().take_while(|line| !line.starts_with("## "));
    // Reads the first table only, without its row of dashes.
    let table = lines.skip_while(|line| !line.starts_with("| "));
    let rows = table.take_while(|line| line.starts_with('|'));
    let rows = rows.filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// One use of a macro: its level or kind, its message or name, its fields.
type Told = (String, String, BTreeSet<String>);

/// Every use of these macros in the sources of telemetry, also of `leasehold-cache`. The library has a macro of its own for events.
fn told(macros: &[&str]) -> BTreeSet<Told> {
    let mut all = BTreeSet::new();
    for text in ["src/telemetry.rs", "../cache/src/telemetry.rs"].map(file) {
        for name in macros {
            let own = format!("say!(self, {}, ", name.to_uppercase());
            for start in [format!("{name}!("), own] {
                for (at, _) in text.match_indices(&start) {
                    let (fields, message) = arguments(&text[at + start.len()..]);
                    all.insert(((*name).to_owned(), message, fields));
                }
            }
        }
    }
    all
}

/// The names of the fields in a macro's arguments, and the text.
fn arguments(text: &str) -> (BTreeSet<String>, String) {
    let (mut depth, mut in_text) = (0, false);
    let (mut parts, mut part) = (Vec::new(), String::new());
    for character in text.chars() {
        match character {
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text && depth == 0 => break,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 && !in_text {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(character);
        }
    }
    parts.push(part);
    let (mut fields, mut message) = (BTreeSet::new(), String::new());
    for part in parts.iter().map(|part| part.trim()) {
        if let Some(text) = part.strip_prefix('"') {
            text.trim_end_matches('"').clone_into(&mut message);
        } else if !part.is_empty() && !part.starts_with("target:") && !part.starts_with("parent:") {
            let field = part.split('=').next().expect("one part at least");
            fields.insert(field.trim().trim_start_matches(['%', '?']).to_owned());
        }
    }
    (fields, message)
}

#[test]
fn every_event_and_span_is_on_the_page_as_it_is() {
    let on_page: BTreeSet<Told> = rows("Events")
        .iter()
        .flat_map(|row| {
            let fields: BTreeSet<String> = quoted(&row[2]).into_iter().collect();
            let messages = quoted(&row[1]).into_iter();
            messages.map(move |message| (row[0].clone(), message, fields.clone()))
        })
        .collect();
    let said = told(&["trace", "debug", "info", "warn", "error"]);
    assert!(said.len() > 20, "{said:?}");
    let (page, code) = (&on_page - &said, &said - &on_page);
    assert!(
        page.is_empty() && code.is_empty(),
        "only on the page: {page:#?}\nonly in the code: {code:#?}"
    );

    let on_page: BTreeSet<Told> = rows("Spans")
        .iter()
        .map(|row| {
            let fields = quoted(&row[4]).into_iter().collect();
            (
                format!("{}_span", row[1]),
                quoted(&row[0]).remove(0),
                fields,
            )
        })
        .collect();
    assert_eq!(told(&["info_span", "debug_span"]), on_page);
}
