//! Administration of arrays for programs: operations, status as data, events as a stream. It prints nothing and parses no arguments.
//!
//! Start with [`Array`]; `examples/administer.rs` brings an array up, creates a volume, reads the status and follows the events. Sizes are in bytes. Each error
//! is a [`Failure`], whose `code` never changes its meaning. Progress is reported to a function given by the caller.
//! Operations must be awaited on a tokio `LocalSet`; [`wait`] makes one for programs that have none.
//!
//! | module | what |
//! | --- | --- |
//! | `array` | an array: status, events as a stream, stopping it |
//! | [`launch`] | bringing an array up |
//! | [`start_confirmations`] | what is to be confirmed before that |
//! | [`volume_operations`] | operations on volumes; growing file systems |
//! | [`write_map`] | what each device does in a write: the RAIDmap |
//! | [`device_operations`], [`replacement`] | operations on devices |
//! | [`scrub`] | finding checksum errors, and parity that does not match |
//! | [`recovery_follower`] | the recovery throttle; follows the resynchronisation of devices until they are in |
//! | [`upgrade`] | the level of an array, which rises at the end of an upgrade |
//! | [`location`] | the devices and spares, what lies on a device, and where the bytes of a volume lie |
//! | [`object_operations`] | operations on objects that take more than one request |
//! | [`disk_facts`] | what a path is before it becomes a device |
//! | [`file_copy`] | copying files and trees |
//! | [`held`] | running a command while something is held |
//! | [`host_fencing`] | fencing hosts at somebody's word |
//! | [`parent_process`] | ending with the process that started this one |
//! | [`status`] | status as data |
//! | [`metadata_room`] | the room for names and inodes in metadata volumes |
//! | [`doctor`] | checks of an array, and what to do about their findings |
//! | [`array_creation`] | the parameters of an array's creation, and how later arguments differ from them |
//! | [`cluster`] | an array on several machines: a new one, another machine, the files of its devices |
//! | [`cluster_recovery`] | backups of what etcd has of an array, and its recovery from them and from devices |
//! | [`first_start`] | the first start of an array, with its initial volumes and file system |
//! | [`volumes`] | creating and deleting volumes with their components |
//! | [`file_system_operations`] | operations on file systems |
//! | [`file_systems`] | creating and deleting file systems |
//! | [`shards`] | how many metadata servers a file system has, and how they work together |
//! | [`lock_server_status`] | the status of lock servers |
//! | [`lock_survey`] | which hosts hold and await locks |
//! | [`file_system_status`] | the status of file systems |
//! | [`file_system_check`] | the check of a file system |
//! | [`operation_driver`] | drives the operations of the control protocol on volumes, devices and file systems, and holds volumes |
//! | [`migration`] | migrating a volume to other devices |
//! | [`device_lifecycle`] | adding, removing and replacing devices and spares: description and membership |
//! | [`new_disk`] | preparing the disks of new devices and spares, and refusal of disks that are in use |
//! | [`device_file`] | the file or disk of a device: creating, opening and checking it |
//! | [`silent_host_fencing`] | fencing hosts that have been silent for too long |
//! | [`copies`] | copies of the array's folder in its devices' files |
//! | [`state_from_devices`] | recovers an array that has lost its folder or the monitor's state |
//! | [`snapshot`] | reads the state of an array once |
//! | [`device_condition`], [`health`] | the state of devices, volumes and the monitor |
//! | [`failure`] | failures: a code, a message, a hint, an exit status |

pub mod array;
pub mod array_creation;
pub mod cluster;
pub mod cluster_recovery;
pub mod copies;
pub mod device_condition;
pub mod device_file;
pub mod device_lifecycle;
pub mod device_operations;
pub mod disk_facts;
pub mod doctor;
pub mod failure;
pub mod file_copy;
pub mod file_system_check;
pub mod file_system_operations;
pub mod file_system_status;
pub mod file_systems;
pub mod first_start;
pub mod health;
pub mod held;
pub mod host_fencing;
pub mod launch;
pub mod location;
pub mod lock_server_status;
pub mod lock_survey;
pub mod metadata_room;
pub mod migration;
pub mod new_disk;
pub mod object_operations;
pub mod operation_driver;
pub mod parent_process;
pub mod recovery_follower;
pub mod replacement;
pub mod scrub;
pub mod shards;
pub mod silent_host_fencing;
pub mod snapshot;
pub mod start_confirmations;
pub mod state_from_devices;
pub mod status;
pub mod upgrade;
pub mod volume_operations;
pub mod volumes;
pub mod write_map;

pub use array::{Array, Event, EventKind, Events, wait};
pub use failure::{Exit, Failure};
pub use file_systems::NewFileSystem;
pub use launch::UpOptions;
pub use status::Status;
pub use volumes::NewVolume;
