//! Waiting for what other processes do.

use crate::failure::Failure;
use braid_control::ControlPlane;
use std::time::{Duration, Instant};

/// The interval of looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Looks at the array again and again, until `is_so`; false if it is not so within `limit`.
pub async fn await_until(
    control: &ControlPlane,
    limit: Duration,
    is_so: impl AsyncFn() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > limit {
            return Ok(false);
        }
        control.changed(LOOK_PAUSE).await;
    }
    Ok(true)
}
