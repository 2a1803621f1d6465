//! Checks of files and disks: bad slots, file modes, and the program files of processes.

use super::examination::{Examination, Process, Program};
use super::finding::{Findings, Subject};
use crate::failure::{READ_ONLY, make_private, release_lock};
use crate::snapshot::CORRUPT_COUNTER;
use crate::start_confirmations;
use braid_base::DeviceId;
use braid_control::{Refusal, shell_word};
use std::collections::BTreeSet;

/// Whether the folder can be changed.
pub fn folder(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    let folder = || Subject::File(look.control.local().absolute());
    if look.refusal == Some(Refusal::ReadOnly) {
        let text = "is on a file system that is read-only: hosts that run go on while their devices serve; nothing can be started or changed";
        found.error(folder(), text, READ_ONLY);
    }
    if let Some(holder) = &examination.lock_holder {
        let text = format!("is locked by {holder}, which is stopped: nothing can be started or changed");
        found.error(folder(), text, release_lock(holder.pid));
    }
    if let Some(original) = &examination.original {
        let text = start_confirmations::copied(look.control.local(), &look.description, original);
        let action = "use one of them only; for a backup, copy the folder while the array is down";
        found.error(Subject::Array, format!("has a folder that is no backup: {text}"), action);
    }
    if let Some(failure) = &look.unasked {
        found.not_checked(&Subject::Array, &format!("the devices were not asked: {failure}"));
    }
}

/// Whether the array could be started, and whether it ended as it should.
pub fn start(examination: &Examination, found: &mut Findings) {
    if let Some(supervisor) = &examination.look.killed {
        let text = format!(
            "is down: `braid up` ({supervisor}) was killed, or its machine was restarted; its daemons ended with it, and no acknowledged write is lost"
        );
        let dir = shell_word(examination.look.control.local().dir());
        let action = format!("run `braid up --dir {dir}`: mounts and servers of their own wait for it, and go on then");
        found.warning(Subject::Array, text, action);
    }
    for failure in &examination.obstacles {
        let action = failure.hint.as_deref().unwrap_or("correct that: `braid up` fails for the same reason");
        found.error(Subject::Array, format!("can't be started: {}", failure.message), action);
    }
}

/// Slots that can't be written, and damaged leaves.
pub fn disks(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    for entry in &look.description.devices {
        let (id, subject) = (DeviceId(entry.id), Subject::Device(DeviceId(entry.id)));
        match look.member_state(id) {
            None => found.not_checked(&subject, "no monitor has reported on it"),
            Some(report) if report.failing => found.error(
                subject.clone(),
                format!("has a failing disk: {} slots can't be written", report.bad_slots),
                format!("replace the disk now: `braid device replace {}`", id.0),
            ),
            Some(report) if report.bad_slots > 0 => found.warning(
                subject.clone(),
                format!("has {} slots that can't be written, and uses others", report.bad_slots),
                format!("plan to replace the disk: `braid device replace {}`", id.0),
            ),
            Some(_) => {}
        }
        match look.counter(id, CORRUPT_COUNTER).unwrap_or_default() {
            0 => {}
            blocks => {
                let text = format!(
                    "has read {blocks} corrupt blocks since it was started; redundant volumes have reconstructed them"
                );
                let action = format!(
                    "check all its blocks: `braid scrub --repair`; if the number grows, replace the disk: `braid device replace {}`",
                    id.0
                );
                found.warning(subject.clone(), text, action);
            }
        }
        let damaged = look.counter(id, "leaves_damaged").unwrap_or_default();
        if damaged > 0 {
            let text = format!("has met {damaged} damaged leaves of its object index: values of objects are lost");
            found.error(subject, text, "replace the disk, and restore the objects from a copy");
        }
    }
}

/// Who can read and change the array's files.
pub fn modes(examination: &Examination, found: &mut Findings) {
    let loose = match &examination.loose {
        Ok(loose) => loose,
        Err(why) => return found.not_checked(&Subject::Array, why),
    };
    for loose in loose {
        let subject = Subject::File(loose.path.clone());
        match loose.distrust {
            Some(distrust) => found.error(subject, distrust.to_string(), make_private(&loose.path)),
            None => {
                let text = format!("can be read by other users (mode {:04o})", loose.mode);
                found.warning(subject, text, make_private(&loose.path));
            }
        }
    }
}

/// The programs of processes.
pub fn versions(examination: &Examination, found: &mut Findings) {
    let mut replaced = BTreeSet::new();
    for Process { subject, pid, program, .. } in &examination.processes {
        match program {
            Program::Same => {}
            Program::Replaced => drop(replaced.insert((*pid, subject.to_string()))),
            // Programs with a host of their own use the library.
            Program::Other(_) if matches!(subject, Subject::Host(..)) => {}
            Program::Other(path) => {
                found.note(subject.clone(), format!("runs another program than this command: {}", path.display()));
            }
            Program::Unknown(why) => found.not_checked(subject, why),
        }
    }
    if !replaced.is_empty() {
        let named: Vec<_> = replaced.iter().map(|(pid, subject)| format!("{subject} (process {pid})")).collect();
        let text = format!("has processes whose program was replaced since they began: {}", named.join(", "));
        let action = "restart them: `braid down`, then `braid up`; mounts and NBD servers of their own, too";
        found.warning(Subject::Array, text, action);
    }
}
