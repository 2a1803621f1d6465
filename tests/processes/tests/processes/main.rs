//! Tests of the whole program, with real processes.
//!
//! | module | what |
//! | --- | --- |
//! | `supervised` | supervised commands: how they end, and that all their processes end with them |
//! | `bad_places` | disks that can't be written at some place |
//! | `bench` | `braid bench`: its metrics are correct, and it removes what it has created |
//! | `clients` | nbdinfo, nbdcopy, qemu-img, qemu-io, fio, libnbd |
//! | `coherence` | every way of reading a file, on two mounts, against a model, and while another mount writes |
//! | `file_system` | ext4 on a volume, through nbdfuse and a loop device |
//! | `files` | files of the library, on two mounts; metadata servers and mounts that are killed |
//! | `files_model` | a file system in memory |
//! | `folder_trouble` | a folder without inodes, on a read-only file system, or locked by a stopped process |
//! | `hostile` | hostile peers at every socket of an array, while clients work |
//! | `hosts` | several servers that write the same stripes, or the same blocks, concurrently |
//! | `orderings` | changes of a volume's ordering under load; lock servers that are killed |
//! | `console` | the commands in README and pages |
//! | `clocks` | a wall clock that is ahead and is then corrected |
//! | `crashes` | `kill -9` of devices, servers, and all processes |
//! | `dead_devices` | devices that fail for good with their disks; rebuilding all of them |
//! | `devices` | adding, taking out, replacing and removing devices; spares |
//! | `failures` | parts of the array are killed or suspended; what `status` shows |
//! | `links` | a device whose link to the others is cut and restored |
//! | `leaving` | graceful disconnect of hosts |
//! | `doctor` | what `braid doctor` finds, and folders that others can change |
//! | `kept_arrays` | arrays of earlier builds |
//! | `killed_changes` | changes of the ordering and migrations that are killed at random moments under load |
//! | `killed_programs` | programs on a mount that are killed, wait or get errors while the array is unavailable |
//! | `json` | the keys of JSON output are those of docs/json.md |
//! | `library` | the client library: its examples, its deadlines, futures that are dropped |
//! | `lifecycle` | up, status, volumes, down, signals |
//! | `attribute_volumes` | structures on an attribute volume, while a device is lost for good |
//! | `metadata_histories` | the history of operations on names through two mounts, while a metadata server is killed |
//! | `metadata_servers` | file systems whose metadata servers are killed and replaced |
//! | `migration` | migration of volumes under load; the migrating process is killed |
//! | `mistakes` | users' mistakes, and the messages about them |
//! | `mounts` | a file system in two folders, while mounts and metadata servers are killed or suspended |
//! | `nodes` | nodes that are killed, suspended and fenced; arrays that are opened as nodes, and back |
//! | `objects` | objects and attributes, from the shell and from programs; devices that are killed meanwhile |
//! | `parity_sites` | parity that devices compute: its site changes under load while devices are killed; maps of writes |
//! | `prelude` | the imports that most of these tests share |
//! | `random_operations` | random operations on a file through two mounts, compared with one in memory |
//! | `reconnects` | clients that reconnect while a device is suspended |
//! | `recording` | recordings of a device and a host, and their replay |
//! | `recipes` | queues, lists and directories, while their device and the processes that change them are killed |
//! | `rebuilding` | a rebuild under load, while its host, another device and all processes are killed |
//! | `shards` | file systems with several metadata servers, one of which is killed under load |
//! | `state_from_devices` | loss of the monitor's state or of the whole folder, and recovery from the devices |
//! | `strangers` | garbage on ports, clients that vanish, devices that are suspended |
//! | `stuck_mounts` | a mount that answers, and does not give back a lock |
//! | `damage` | devices that are swapped, damaged, of a newer release, or full |
//! | `holds` | locks, tickets and leaders, while their device and their holders are killed |
//! | `watching` | status, rebuild and events while devices fail, return and are rebuilt, and during scrubs |

mod attribute_volumes;
mod bad_places;
mod bench;
mod clients;
mod clocks;
mod coherence;
mod console;
mod crashes;
mod damage;
mod dead_devices;
mod devices;
mod doctor;
mod failures;
mod file_system;
mod files;
mod files_model;
mod folder_trouble;
mod growth;
mod holds;
mod hostile;
mod hosts;
mod json;
mod kept_arrays;
mod killed_changes;
mod killed_programs;
mod leaving;
mod library;
mod lifecycle;
mod links;
mod metadata_histories;
mod metadata_servers;
mod migration;
mod mistakes;
mod mounts;
mod nodes;
mod objects;
mod orderings;
mod parity_sites;
mod prelude;
mod random_operations;
mod rebuilding;
mod recipes;
mod reconnects;
mod recording;
mod shards;
mod state_from_devices;
mod strangers;
mod stuck_mounts;
mod supervised;
mod watching;
