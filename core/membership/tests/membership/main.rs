//! The monitor on a test bench, rule by rule. The attack runs it in whole arrays (`sim/cluster`).

mod bench;
mod fences;
mod late_answers;
mod leaving;
mod older_disks;
mod ownership;
mod record_recovery;
mod returning;
mod slots;
mod starting;
mod story;
mod strangers;
mod terms;
