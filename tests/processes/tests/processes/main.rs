//! Tests of the whole program, with real processes.

mod bench; // `braid bench`: its metrics are correct, and it removes what it has created
mod clocks; // a wall clock that is ahead and is then corrected; clocks that differ
mod console; // the commands in README and pages
mod damage; // blocks that are damaged, and disks that can't be written at some place
mod devices; // disks that are replaced by an operator or by spares, and rebuilds, while processes are killed
mod failures; // parts of the array, or all of it, are killed or suspended; what `status` shows
mod files; // files of the library, on two mounts; metadata servers and mounts that are killed
mod files_model; // what the kernel does in a folder of this machine
mod holds; // locks, tickets and leaders, while their device and their holders are killed
mod hostile; // hostile peers at every socket of an array, while clients work
mod hosts; // several servers that write the same stripes, or the same blocks, concurrently; clients that reconnect; hosts that end
mod json; // the keys of JSON output are those of docs/json.md
mod kept_arrays; // arrays of earlier builds
mod killed_changes; // changes of the ordering and migrations that are killed at random moments under load
mod killed_programs; // programs on a mount that are killed, wait or get errors while the array is unavailable
mod library; // the client library: its examples, its deadlines, futures that are dropped
mod links; // a device whose link to the others is cut and restored
mod metadata_histories; // the history of operations on names through two mounts, while a metadata server is killed
mod mounted_files; // files, names and locks in two folders in which a file system is mounted
mod mounts; // a file system in two folders, while mounts and metadata servers are killed or suspended
mod nodes; // nodes that are killed or suspended, whose port is taken, or whose disk hangs
mod objects; // objects and attributes, from the shell and from programs, and structures on them, while devices are killed or lost
mod orderings; // changes of a volume's ordering under load; lock servers that are killed
mod prelude; // the imports that most of these tests share
mod range_locks; // locks of ranges on several hosts, while holders and lock servers die
mod recipes; // queues, lists and directories, while their device and the processes that change them are killed
mod recording; // recordings of a device and a host, and their replay
mod shards; // file systems with several metadata servers, one of which is killed under load
mod stuck_mounts; // a mount that answers, and does not give back a lock
mod supervised; // supervised commands: how they end, and that all their processes end with them
mod transcripts; // pages with commands, what they say, and what they say about mistakes
mod upgrades; // an array that moves to the next release, daemon by daemon, and back
mod volume_changes; // volumes that grow, and parity that devices compute: its site changes under load while devices are killed
