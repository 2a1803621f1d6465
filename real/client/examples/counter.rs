//! Attributes: a counter shared by many programs, the election of a leader, and waiting for a change.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example counter
//! ```

use braid_client::{Array, ArrayOptions, AttributeName, Error, Value, wait};
use std::time::Duration;

/// Programs agree on pages and numbers of attributes as they do on file names.
const COUNT: AttributeName = AttributeName::new(1, 1);
const LEADER: AttributeName = AttributeName::new(1, 2);

fn main() -> Result<(), Error> {
    wait(run())
}

async fn run() -> Result<(), Error> {
    let array = Array::connect(ArrayOptions::default().name("counter")).await?;
    let object = array.device(0).create().await?;

    // Each addition counts once, however often a message is lost and sent again.
    for _ in 0..10 {
        object.fetch_and_add(COUNT, 1).await?;
    }
    println!("counted to {:?}", object.get(COUNT).await?.as_i64());

    // The first program leads. The generation of this host is a number that no other host ever has.
    let own = Value::from(i64::from(array.generation()));
    let swapped = object.compare_and_swap_exact(LEADER, "", &own).await?;
    println!("I lead: {}", swapped.swapped);

    // Other programs need not poll: they are told when the leader changes.
    let watcher = object.clone();
    let watching = std::thread::spawn(move || wait(watcher.wait_for_change(LEADER, &own, Duration::from_secs(10))));
    object.delete(LEADER).await?;
    let heard = watching.join().expect("it does not panic")?;
    println!("the leader has gone: {:?}", heard.map(|value| value.is_undefined()));

    object.remove().await?;
    array.close().await;
    Ok(())
}
