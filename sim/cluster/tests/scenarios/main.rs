//! Scripted scenarios, each a story with its outcome in the name.

mod changes;
mod cut_short;
mod device_locks;
mod lock_servers;
mod story;
mod timestamps;
