//! The CPU usage of an idle array.

use super::array::Array;
use super::system::cpu_time;
use crate::prelude::*;

/// The CPU usage of all processes of the array during `duration`, as a share of one core.
pub fn cpu_share(array: &Array<'_>, duration: Duration, interrupt: &Interrupt) -> Result<f64> {
    let processes = array.processes()?;
    let used = || -> Result<Duration> { processes.iter().map(|pid| cpu_time(*pid)).sum() };
    let (begun, before) = (Instant::now(), used()?);
    interrupt.pause(duration)?;
    let after = used()?;
    Ok((after - before).as_secs_f64() / begun.elapsed().as_secs_f64())
}
