//! Fail-over: one machine does the work while another stands by. The first one is suspended and the second takes over; when the first one
//! resumes, the device refuses its late writes.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example leader
//! ```

use braid_client::recipes::failover::{FailOver, FailOverOptions, Leadership};
use braid_client::{Array, ArrayOptions, AttributeName, Error, Object, now, wait};
use std::time::Duration;

/// The leader record: three attributes, on consecutive pages.
const LEADER: AttributeName = AttributeName::new(1, 0);
/// The fence for data on another device.
const FENCE: AttributeName = AttributeName::new(20, 0);
/// A leader that shows no progress for this long has failed.
const LEASE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    wait(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    // Two machines would each have their own `Array`.
    let array = Array::connect(ArrayOptions::default().name("leader")).await?;
    let (word, data) = (array.device(0).create().await?, array.device(1).create().await?);
    let service = FailOver::new(word.id(), LEADER, FailOverOptions { lease: LEASE, ..FailOverOptions::default() });

    let first = lead(&service, &word, &data, "first").await?;
    let first = work(first, &word, &data, "the first one leads\n").await?;

    // The first one shows no progress any more. The second one detects that by its own clock.
    let second = lead(&service, &word, &data, "second").await?;
    println!("the second one leads, in term {} after {}", second.term(), first.term());
    let second = work(second, &word, &data, "the second one leads\n").await?;

    match work(first, &word, &data, "the first one is back\n").await {
        Err(error) => println!("the first one is told: {error}"),
        Ok(_) => println!("two leaders!"),
    }
    word.space().run(second.resign()).await??;
    let log = data.read(0, 1000).await?;
    println!("the log:\n{}", String::from_utf8_lossy(&log));

    word.remove().await?;
    data.remove().await?;
    array.close().await;
    Ok(())
}

/// Waits until this machine leads. After that, no former leader can write to the data.
async fn lead(
    service: &FailOver,
    word: &Object,
    data: &Object,
    name: &str,
) -> Result<Leadership, Box<dyn std::error::Error>> {
    let leadership = word.space().run(service.campaign(name)).await??;
    data.space().run(leadership.fence_at(data.id(), FENCE).raise()).await??;
    Ok(leadership)
}

/// Appends a line to the log if this machine still leads, and shows progress when it is due.
async fn work(
    mut leadership: Leadership,
    word: &Object,
    data: &Object,
    line: &'static str,
) -> Result<Leadership, Error> {
    data.request().append(line).guarded(&leadership.fence_at(data.id(), FENCE)).await?;
    if now() >= leadership.progress_at()
        && let Ok(renewed) = word.space().run(leadership.progress()).await?
    {
        leadership = renewed;
    }
    Ok(leadership)
}
