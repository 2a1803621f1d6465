//! `braid device`: adding, removing and replacing devices of an array; creating, serving, inspecting and checking single devices.

mod changes;
mod file;
mod location;
mod serve;

use braid_base::units::format_size;
use std::future::ready;

commands! {
    /// Add, replace and remove devices of an array, show what lies on them; create, serve and check
    /// single devices
    ///
    /// A device is a numbered slot of the array. A disk, which is a file or a raw disk, fills the slot.
    /// Volumes lie on slots. When a disk fails, another disk fills its slot, and is rebuilt from the
    /// other devices while the volumes stay in use:
    ///
    ///   braid device replace 3                  replace device 3's disk by a new file in the array's folder
    ///   braid device add --spare                add a disk that will replace the next failed disk automatically
    ///   braid device locate 3                   show what lies on device 3
    ///
    /// `braid up` creates and serves the devices of an array itself: `create` and `serve` are for devices
    /// on other machines.
    #[command(verbatim_doc_comment)]
    pub enum Command {
        Add(changes::AddArgs) => changes::add,
        List(location::ListArgs) => location::list,
        Fail(changes::FailArgs) => changes::fail,
        Readmit(changes::ReadmitArgs) => changes::readmit,
        Replace(changes::ReplaceArgs) => changes::replace,
        Remove(changes::RemoveArgs) => changes::remove,
        Locate(location::LocateArgs) => location::locate,
        Create(file::CreateArgs) => |arguments, common| ready(file::create(arguments, common)),
        Serve(serve::Arguments) => serve::run,
        Inspect(file::InspectArgs) => |arguments, common| ready(file::inspect(arguments, common)),
        Check(file::CheckArgs) => |arguments, common| ready(file::check(arguments, common)),
    }
}

/// Parses the size of a device's cache for objects' content: at least what one request may need, except for the most scattered requests.
pub fn object_memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 20;
    let bytes = braid_terminal::arguments::size(text)?;
    if bytes < LEAST { Err(format!("a device needs at least {}", format_size(LEAST))) } else { Ok(bytes) }
}
