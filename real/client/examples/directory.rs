//! A directory: names for objects, which any number of programs may change at once.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example directory
//! ```

use braid_client::recipes::directory::{Changed, Directory, Expected};
use braid_client::recipes::idempotency_record::IdempotencyRecord;
use braid_client::{Array, ArrayOptions, Bytes, Error, ObjectFailure, wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    wait(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let array = Array::connect(ArrayOptions::default().name("directory")).await?;
    let space = array.device(0);
    let root = space.create().await?;
    // With an idempotency record, a program learns the outcome of a change whose answer was lost. The record's number must be unique, like
    // the generation of this host.
    let directory =
        Directory { idempotency_record: Some(IdempotencyRecord(array.generation())), ..Directory::new(root.id()) };

    // The object is created before its name: a crash in between leaves an object without a name, but never a name without an object.
    for text in ["apple", "pear", "plum"] {
        let file = space.create().await?;
        file.write(0, format!("all about the {text}")).await?;
        let changed = space.run(directory.insert(Bytes::from(text), file.id())).await??;
        println!("{text}: {changed:?}");
    }
    let again = space.run(directory.insert(Bytes::from("pear"), root.id())).await??;
    println!("a name stands for one object: {}", matches!(again, Changed::Exists(_)));

    let found =
        space.run(directory.look_up(Bytes::from("plum"))).await??.ok_or(Error::Object(ObjectFailure::NoSuchObject))?;
    let text = space.object(found.object.0).read(0, 100).await?;
    println!("plum: {:?}", String::from_utf8_lossy(&text));

    // Removes the name only if the entry is unchanged.
    let removed = space.run(directory.remove(Bytes::from("plum"), Expected::Seen(found))).await??;
    println!("plum: {removed:?}");

    let mut after = None;
    loop {
        let page = space.run(directory.names(after, 500)).await??;
        for (name, object) in &page.names {
            println!("{} is object {}", String::from_utf8_lossy(name), object.0);
            space.object(object.0).remove().await?;
        }
        after = page.more;
        if after.is_none() {
            break;
        }
    }
    root.remove().await?;
    array.close().await;
    Ok(())
}
