//! `braid monitor recover`: rebuilds the monitor's state, or the array's folder, from the devices.

use crate::report;
use braid_admin::state_from_devices::{DeviceFacts, Plan, RecoverOptions, Recovery};
use braid_admin::{Array, Failure};
use braid_base::{DeviceId, MemberState};
use braid_control::{ArrayDescription, LocalFolder, shell_word};
use braid_terminal::Common;
use braid_terminal::output::table;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Recover the state of the array's monitor, which decides which devices are in
#[derive(clap::Subcommand)]
pub enum Command {
    Recover(RecoverArgs),
}

pub async fn run(Command::Recover(arguments): Command, common: &Common) -> Result<ExitCode, Failure> {
    recover(arguments, common).await
}

/// Recreate the monitor's state from the devices, if it is lost or outdated
///
/// The state (monitor.state in the array's folder) records which devices are up to date. Each device
/// stores the last membership that it adopted. The recovery reads all devices, and continues from
/// the newest membership. Therefore the array must be down, and all devices are needed: a missing
/// device may have been written to after the others. All existing hosts are fenced: restart
/// `braid nbd` and other programs. The file `generations` is recreated, too, if it is missing.
///
/// --without recovers without a device whose disk is lost. Then data that only this device held is
/// lost, and its disk is refused even if it is found again: give the device another disk with
/// `braid device replace`.
///
/// --from is for the loss of the whole folder. Device files contain a copy of array.json, which
/// `braid up` keeps up to date. --from uses the newest copy in the named files, and recreates
/// array.json and generations. A copy is refused if the devices hold other volumes than it
/// describes. Raw disks have no copy.
///
/// Examples:
///   braid monitor recover --dry-run        show what the devices say, and what would be done
///   braid monitor recover                  recover; then run `braid up`
///   braid monitor recover --without d3     recover without device 3, whose disk is lost for good
///   braid monitor recover --array /srv/new --from /disks/*.braid    the array's folder is lost
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct RecoverArgs {
    /// Show what would be done, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Recover without this device; may be given more than once
    #[arg(long, value_name = "DEVICE", value_parser = braid_terminal::arguments::device)]
    without: Vec<u16>,
    /// Also recreate array.json from the copies in these device files: name the files of all devices
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
}

async fn recover(arguments: RecoverArgs, common: &Common) -> Result<ExitCode, Failure> {
    let RecoverArgs { dry_run, without, from } = arguments;
    let options =
        RecoverOptions { dry_run, without: without.into_iter().map(DeviceId).collect(), description_from: from };
    let control = common.control();
    let Recovery { description, plan, restores_description } = Array::of(control.clone()).recover(&options).await?;
    let view = View { folder: control.local(), description: &description, plan: &plan, dry_run, restores_description };
    report::done(common.json, view.json(), || view.text())
}

/// The output of a recovery.
struct View<'a> {
    folder: &'a LocalFolder,
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
                (Ok(_), Some(epoch)) if epoch.0 > 0 => format!("is at epoch {}", epoch.0),
                _ => "has never served".to_string(),
            };
            vec![format!("device {}", facts.id), self.member_state(facts.id).to_string(), said]
        };
        let mut text = table(&self.plan.devices.iter().map(row).collect::<Vec<_>>());
        let (newest, epoch) = (self.plan.record.newest, self.plan.record.membership().epoch);
        let dir = shell_word(self.folder.dir());
        text +=
            &format!("\nThe newest membership has epoch {}. The monitor continues with epoch {}.\n", newest.0, epoch.0);
        text += &format!("All hosts up to {} are fenced.\n", self.plan.last_generation);
        if self.restores_description {
            let volumes: Vec<&str> = self.description.volumes.iter().map(|volume| volume.name.as_str()).collect();
            let volumes = volumes.join(", ");
            text += &format!("array.json is lost: according to its newest copy the array has the volumes {volumes}.\n");
        }
        for device in &self.plan.record.left_out {
            text += &format!(
                "Device {device} is left out: replace it with `braid device replace {}` once the array is up.\n",
                device.0
            );
        }
        let degraded = if self.plan.record.left_out.is_empty() { "" } else { " --degraded" };
        text += &match self.dry_run {
            true => "Nothing was changed.\n".to_string(),
            false => {
                format!("The monitor's state was recreated: start the array with `braid up --dir {dir}{degraded}`.\n")
            }
        };
        text
    }
}
