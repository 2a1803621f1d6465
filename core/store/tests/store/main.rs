//! The store against a disk that forgets what was not synced, and against a naive model.

mod crashes;
mod damage;
mod disk;
mod full;
mod protocol;
mod run;
