//! Lock, write and unlock in one round trip; and what happens if another program has the lock.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example locked_write
//! ```

use braid_client::{Array, ArrayOptions, AttributeName, Error, Object, Request, wait};

const LOCK: AttributeName = AttributeName::new(1, 1);
const VERSION: AttributeName = AttributeName::new(1, 2);

fn main() -> Result<(), Error> {
    wait(run())
}

async fn run() -> Result<(), Error> {
    let array = Array::connect(ArrayOptions::default().name("locked-write")).await?;
    let object = array.device(0).create().await?;

    let answers = locked_write(&object, "me", "first").send().await?;
    println!("the lock was free: written: {}", answers.all_swapped());

    // Another program holds the lock: nothing of the request is executed but the failed comparison.
    object.set(LOCK, "somebody else").await?;
    let answers = locked_write(&object, "me", "second").send().await?;
    let holder = answers.swapped(0).map(|lock| lock.original);
    println!(
        "written: {}, since {:?} has the lock",
        answers.all_swapped(),
        holder.as_deref().map(String::from_utf8_lossy)
    );

    let data = object.read(0, 100).await?;
    let version = object.get(VERSION).await?.as_i64();
    println!("the object holds {:?}, version {version:?}", String::from_utf8_lossy(&data));

    object.remove().await?;
    array.close().await;
    Ok(())
}

/// One request is executed as a whole or not at all, so a crash cannot leave the lock behind.
fn locked_write(object: &Object, own: &'static str, text: &'static str) -> Request {
    object
        .request()
        .compare_and_swap(LOCK, "", own)
        .write(0, text)
        .if_swapped()
        .fetch_and_add(VERSION, 1)
        .if_swapped()
        .set(LOCK, "")
        .if_swapped()
}
