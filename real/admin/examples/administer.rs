//! Administering an array: brings it up, creates a volume, reads the status, follows events, deletes the volume, and stops the array.
//!
//! ```console
//! $ cargo run --release -p braid-admin --example administer -- /tmp/example target/release/braid
//! ```

use braid_admin::array_creation::CreateOptions;
use braid_admin::{Array, EventKind, Failure, NewVolume, UpOptions, wait};
use std::time::Duration;

fn main() -> Result<(), Failure> {
    wait(run())
}

async fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let array = Array::at(arguments.next().unwrap_or_else(|| "braid-example".into()));
    let program = arguments.next().unwrap_or_else(|| "braid".into());

    // The array runs in processes of its own, and would continue if this program ended now.
    let create = CreateOptions {
        devices: Some(3),
        size: Some(64 << 20),
        volumes: vec![("first".to_string(), 16 << 20)],
        ..CreateOptions::default()
    };
    array.up(&UpOptions { create, ..UpOptions::new(program) }).await?;
    println!("the array is up");

    let outcome = administer(&array).await;
    array.down(Duration::from_secs(30)).await?;
    println!("the array is down");
    outcome
}

async fn administer(array: &Array) -> Result<(), Failure> {
    let volume = array.create_volume(&NewVolume::new("example", 1 << 20)).await?;
    println!("created volume {}: {} bytes, {}", volume.name, volume.bytes, volume.layout);

    let status = array.status().await?;
    for device in &status.devices {
        println!("device {}: {}", device.id, device.text);
    }
    let of_volume = status.volume("example").expect("the volume exists");
    println!("volume {}: {}, {}", of_volume.name, of_volume.state, of_volume.nbd.as_deref().unwrap_or("not served"));

    // Changes made by the monitor are reported as events.
    let mut events = array.events_from_now().await?;
    let change = array.set_throttle(|throttle| throttle.paused = !throttle.paused).await?;
    let changed = loop {
        let event = events.next().await?;
        if event.kind == EventKind::ThrottleChanged {
            break event;
        }
    };
    println!("event {}: {}", changed.kind.name(), changed.text);
    array.set_throttle(|throttle| *throttle = change.before).await?;

    array.delete_volume("example").await?;
    println!("deleted volume example");
    Ok(())
}
