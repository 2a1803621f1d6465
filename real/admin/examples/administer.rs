//! Administering an array: creates a volume, reads the status, follows events, and deletes the volume.
//!
//! ```console
//! $ braid up                                      # in another terminal; this example uses ./braid-data, or the folder in BRAID_ARRAY
//! $ cargo run --release -p braid-admin --example administer
//! ```

use braid_admin::{Array, EventKind, Failure, NewVolume, wait};

fn main() -> Result<(), Failure> {
    wait(run())
}

async fn run() -> Result<(), Failure> {
    let array = Array::at(std::env::var_os("BRAID_ARRAY").unwrap_or_else(|| "braid-data".into()));

    let volume = array.create_volume(&NewVolume::new("example", 1 << 20)).await?;
    println!("created volume {}: {} bytes, {}", volume.name, volume.bytes, volume.layout);

    let status = array.status().await?;
    for device in &status.devices {
        println!("device {}: {}", device.id, device.words);
    }
    let of_volume = status.volume("example").expect("the volume exists");
    println!("volume {}: {}, {}", of_volume.name, of_volume.state, of_volume.nbd.as_deref().unwrap_or("not served"));

    // Changes made by the monitor are reported as events.
    let mut events = array.events_from_now()?;
    let change = array.set_throttle(|throttle| throttle.paused = !throttle.paused).await?;
    let changed = loop {
        let event = events.next().await?;
        if event.kind == EventKind::ThrottleChanged {
            break event;
        }
    };
    println!("event {}: {}", changed.kind.name(), changed.words);
    array.set_throttle(|throttle| *throttle = change.before).await?;

    array.delete_volume("example").await?;
    println!("deleted volume example");
    Ok(())
}
