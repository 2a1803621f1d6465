//! A lock: several programs increment a number in a file, one at a time. Start this program twice. The lock excludes other programs as long
//! as its holder is alive and on time. Each write is guarded by the lock: so the late write of a holder that was considered dead is refused.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example lock
//! ```

use braid_client::recipes::lock::{Lock, LockOptions};
use braid_client::{Array, ArrayOptions, AttributeName, Error, Object, ObjectFailure, now, wait};
use std::time::Duration;

/// Programs agree on objects and attributes as they do on file names. A lock has three attributes, on consecutive pages.
const FILE: u64 = 1000;
const LOCK: AttributeName = AttributeName::new(10, 0);
const ROUNDS: u32 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    wait(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let array = Array::connect(ArrayOptions::default().name("lock")).await?;
    let file = match array.device(0).create_as(FILE).await {
        Err(Error::Object(ObjectFailure::ObjectExists)) => array.device(0).object(FILE),
        made => made?,
    };
    let space = file.space();
    let lock = Lock::new(file.id(), LOCK, LockOptions { lease: Duration::from_secs(3), ..LockOptions::default() });
    let name = format!("program-{}", array.generation());

    for _ in 0..ROUNDS {
        let mut grant = space.run(lock.acquire(name.as_str())).await??;
        let count = number_in(&file).await?;
        // A holder that works for long renews the lock by this time.
        if now() >= grant.renew_at() {
            grant = space.run(grant.renew()).await??;
        }
        match file.request().truncate(0).write(0, (count + 1).to_string()).guarded(&grant).await {
            Ok(_) => {}
            Err(refused) if matches!(refused.error, Error::TooLate { .. }) => println!("too late: nothing is written"),
            Err(failed) => return Err(failed.into()),
        }
        space.run(grant.release()).await??;
    }
    println!("counted to {} at least", number_in(&file).await?);

    // A single request under the lock takes one round trip.
    let once = lock.once(name.as_str(), file.request().append(" so far").into())?;
    space.run(once).await??;
    let text = file.read(0, 100).await?;
    println!("the file holds {:?}", String::from_utf8_lossy(&text));

    array.close().await;
    Ok(())
}

async fn number_in(file: &Object) -> Result<u64, Error> {
    let text = file.read(0, 100).await?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
