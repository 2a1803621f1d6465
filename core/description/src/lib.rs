//! The description of an array, the content of `array.json`: its devices, volumes and file systems, and the administrators at work on them.
//!
//! [`ArrayDescription::apply`] says what the store of the control plane does for each command about the description. So a store keeps bytes
//! with a version, and decides nothing: the array's folder and the simulator run this code, and another store can.
//!
//! | module | what |
//! | --- | --- |
//! | `array` | the description, its devices and spares, and what must hold in it |
//! | `volumes` | entries of volumes, and the changes of them that are under way |
//! | `file_systems` | entries of file systems |
//! | `records` | entries as the control protocol reads and replaces them, and as hosts need them |
//! | `apply` | the commands of the control protocol |
//! | `format` | the bytes of a description, and which release can read them |
//! | `unavailable` | what requests do while devices are missing |

mod apply;
mod array;
mod file_systems;
mod format;
mod records;
mod unavailable;
mod volumes;

pub use apply::{Applied, Refusal, Subject, device_record};
pub use array::{
    ArrayDescription, Creation, DeviceEntry, DeviceState, DiskEntry, lies_in_folder, parse_array_id, parse_disk,
};
pub use file_systems::{FileSystemEntry, FileSystemState, ShardsEntry};
pub use format::{FormatError, SCHEMA, SCHEMA_KNOWN, SCHEMA_OF_GROWTH, format, parse};
pub use records::{
    DescriptionError, change, describe, describe_widest, find, find_for_programs, layout, record, set_record,
};
pub use unavailable::WhenUnavailable;
pub use volumes::{Change, PlacementEntry, VolumeEntry, VolumeState};
