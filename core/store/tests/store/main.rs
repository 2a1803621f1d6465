//! Tests of the store with a disk that loses unsynced writes, and with a naive model.

mod absent;
mod answers;
mod bad_slots;
mod crashes;
mod damage;
mod disk;
mod full;
mod membership;
mod missing;
mod object_index;
mod older_journals;
mod owner_requests;
mod pressure;
mod protocol;
mod replay;
mod requests;
mod run;
