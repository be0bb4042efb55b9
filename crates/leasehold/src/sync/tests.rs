//! The choice of explored schedules.

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

/// Runs this many schedules of a scene: random ones, or ones with few task switches.
pub(crate) fn explore<F>(count: usize, scene: impl Fn() -> F + Copy + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    fn run<F>(scheduler: impl Scheduler + 'static, scene: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut config = shuttle::Config::new();
        config.stack_size = 0x40_000;
        shuttle::Runner::new(scheduler, config).run(move || block_on(scene()));
    }
    run(RandomScheduler::new(count * 3 / 4), scene);
    run(PctScheduler::new(3, count / 4), scene);
}
