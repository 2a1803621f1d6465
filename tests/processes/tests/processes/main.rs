//! The whole program, as people and their programs use it.
//!
//! | module | what |
//! | --- | --- |
//! | `attended` | commands that run while something is held: how they end, and that nothing is left of them |
//! | `bad_places` | disks that can't be written at some place |
//! | `bench` | `braid bench`: whether its figures are so, and whether it leaves everything as it was |
//! | `clients` | nbdinfo, nbdcopy, qemu-img, qemu-io, fio, libnbd |
//! | `file_system` | ext4 on a volume, through nbdfuse and a loop device |
//! | `hosts` | several servers that write the same stripes, or the same blocks, at once |
//! | `orderings` | volumes whose ordering is changed under load; lock servers that die |
//! | `console` | the commands in README and pages |
//! | `clocks` | a wall clock that was ahead and is set right |
//! | `crashes` | `kill -9` of devices, servers, and everything |
//! | `devices` | devices that are added, taken out, replaced and removed; spares |
//! | `failures` | one part after the other dies or stands still; what `status` tells of it |
//! | `links` | a device whose link to the others is cut and healed |
//! | `library` | the library for programs: its examples, its deadlines, futures that are dropped |
//! | `lifecycle` | up, status, volumes, down, signals |
//! | `attribute_volumes` | structures on an attribute volume, whose device is lost for good |
//! | `mistakes` | what people get wrong, and what they are told |
//! | `objects` | objects and attributes, from the shell and from programs; devices that are killed meanwhile |
//! | `reconnects` | clients that lose their connection and come back while a device stands still |
//! | `recipes` | queues, lists and directories, while their device and who changes them are killed |
//! | `rebuilding` | a rebuild under load, while its host, another device and everybody is killed |
//! | `strangers` | garbage on ports, clients that vanish, devices that stand still |
//! | `damage` | devices that are swapped, damaged, too new, or full |
//! | `holds` | locks, tickets and leaders, while their device and who holds them are killed |
//! | `watching` | what is told of devices that go, come back and are rebuilt, and of scrubs: status, rebuild, events |

mod attribute_volumes;
mod bad_places;
mod bench;
mod clients;
mod clocks;
mod console;
mod crashes;
mod damage;
mod dead_devices;
mod devices;
mod failures;
mod file_system;
mod holds;
mod hosts;
mod leaving;
mod library;
mod lifecycle;
mod links;
mod migration;
mod mistakes;
mod objects;
mod orderings;
mod rebuilding;
mod recipes;
mod reconnects;
mod recovery;
mod strangers;
mod supervised;
mod watching;
