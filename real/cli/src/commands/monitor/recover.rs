//! `braid monitor recover`.

use braid_admin::recover::{RecoverOptions, Recovery};
use braid_admin::recovery::{DeviceFacts, Plan};
use braid_admin::{Array, Failure};
use braid_base::{DeviceId, MemberState};
use braid_control::{ArrayDescription, ArrayFolder};
use braid_terminal::Common;
use braid_terminal::output::{self, table};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make the monitor's state anew from what the devices know, if it is lost or is an old copy
///
/// The state (monitor.state in the array's folder) says which devices have everything that was written. Each device keeps the last
/// membership that it adopted; the newest of these is the one to go on from, once every device has been read. So the array must be down, and
/// all devices are needed: one that is missing may have been written to after the others. All hosts that were there before are fenced:
/// start `braid nbd` and the like again. The file `generations` is made anew, too, if it is missing.
///
/// --without does without a device whose disk is lost. What that device alone held is lost then, and its disk is not let in again, not
/// even if it turns up: `braid device replace` gives the device another one, which is rebuilt.
///
/// If the whole folder is lost: device files have a copy of array.json, which `braid up` keeps up to date. --from takes the newest copy of the
/// files that are named, and makes array.json and generations anew, too. A copy is refused if the devices have other volumes than it says. Raw
/// disks have no copy.
///
/// Examples:
///   braid monitor recover --dry-run        what the devices say, and what would be done
///   braid monitor recover                  do it; then `braid up`
///   braid monitor recover --without d3     the disk of device 3 is gone for good
///   braid monitor recover --array /srv/new --from /disks/*.braid    the array's folder is gone
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do without this device; may be given more than once
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    without: Vec<u16>,
    /// Make array.json anew, too, from the copies that these device files have: name the files of all devices
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
}

/// Makes it anew.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { dry_run, without, from } = arguments;
    let options =
        RecoverOptions { dry_run, without: without.into_iter().map(DeviceId).collect(), description_from: from };
    let folder = common.folder();
    let Recovery { description, plan, restores_description } = Array::of(folder.clone()).recover(&options)?;
    let view = View { folder: &folder, description: &description, plan: &plan, dry_run, restores_description };
    output::print(common.json, || view.json(), || view.text());
    Ok(ExitCode::SUCCESS)
}

/// What was found, and done.
struct View<'a> {
    folder: &'a ArrayFolder,
    description: &'a ArrayDescription,
    plan: &'a Plan,
    dry_run: bool,
    restores_description: bool,
}

impl View<'_> {
    fn member_state(&self, device: DeviceId) -> &'static str {
        let member = self.plan.record.membership().member(device);
        match member.map(|member| member.member_state) {
            _ if self.plan.record.left_out.contains(&device) => "left-out",
            Some(MemberState::In) => "in",
            Some(MemberState::Returning { .. }) => "returning",
            Some(MemberState::Out) => "out",
            None => "not-known",
        }
    }

    fn json(&self) -> serde_json::Value {
        let device = |facts: &DeviceFacts| {
            json!({
                "id": facts.id.0,
                "file": facts.path,
                "lives_by": facts.lives_by().map(|epoch| epoch.0),
                "error": facts.facts.as_ref().err().map(|failure| failure.message.clone()),
                "member_state": self.member_state(facts.id),
            })
        };
        json!({
            "schema": 2,
            "dir": self.folder.absolute(),
            "array": self.description.array.to_string(),
            "recovered": !self.dry_run,
            "newest": self.plan.record.newest.0,
            "epoch": self.plan.record.membership().epoch.0,
            "generations": self.plan.last_generation,
            "restored_description": self.restores_description && !self.dry_run,
            "restored_generations": self.plan.restores_generations && !self.dry_run,
            "devices": self.plan.devices.iter().map(device).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let row = |facts: &DeviceFacts| {
            let said = match (&facts.facts, facts.lives_by()) {
                (Err(failure), _) => failure.message.clone(),
                (Ok(_), Some(epoch)) if epoch.0 > 0 => format!("lives by epoch {}", epoch.0),
                _ => "has never been in use".to_string(),
            };
            vec![format!("device {}", facts.id), self.member_state(facts.id).to_string(), said]
        };
        let mut text = table(&self.plan.devices.iter().map(row).collect::<Vec<_>>());
        let (newest, epoch) = (self.plan.record.newest, self.plan.record.membership().epoch);
        let dir = self.folder.dir().display();
        text += &format!(
            "\nThe newest membership is that of epoch {}. The monitor goes on from it with epoch {}.\n",
            newest.0, epoch.0
        );
        text += &format!("All hosts up to {} are fenced.\n", self.plan.last_generation);
        if self.restores_description {
            let volumes: Vec<&str> = self.description.volumes.iter().map(|volume| volume.name.as_str()).collect();
            text +=
                &format!("array.json is lost: by its newest copy the array has the volumes {}.\n", volumes.join(", "));
        }
        for device in &self.plan.record.left_out {
            text += &format!(
                "Device {device} is done without: `braid device replace {}` once the array is up.\n",
                device.0
            );
        }
        text += &match self.dry_run {
            true => "Nothing was changed.\n".to_string(),
            false => format!("The monitor's state has been made anew: `braid up --dir {dir}` starts the array.\n"),
        };
        text
    }
}

/// Reads a device's number, with or without its letter.
fn device(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix('d').unwrap_or(text);
    digits.parse().map_err(|_| format!("'{text}' is no device: write its number, such as 3 or d3"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn devices_are_named_with_and_without_their_letter() {
        assert_eq!((super::device("3"), super::device("d12")), (Ok(3), Ok(12)));
        assert!(super::device("x3").is_err() && super::device("d").is_err());
    }
}
