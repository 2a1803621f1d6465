//! `braid volume check`: compares the parity of each stripe with its data.

use crate::report;
use braid_admin::scrub::Findings;
use braid_admin::{Array, Exit, Failure};
use braid_base::DeviceId;
use braid_terminal::{Common, output};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Compare the parity of every stripe with its data
///
/// Works while the volume is in use. Prints the numbers of stripes that are checked, bad (parity and data differ), unreadable (a block is
/// damaged), and not checked. A stripe is not checked if a device is out or being resynchronised: it is served, but its redundancy can't
/// be compared. Ends with status 4 if any stripe is bad or unreadable; those that are not checked don't count: if none could be checked, it
/// says so (`checked` is 0 with --json) and ends with 0. If the volume is being migrated, only the stripes at the source are checked.
///
/// Example: `braid volume check vol0 --reconstruct`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// Also reconstruct each unit from the other units of its stripe, and compare it
    #[arg(long)]
    reconstruct: bool,
}

/// Bad stripes that are listed.
const NAMED: usize = 16;

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let bar = output::progress(0, "stripes");
    let progress = |checked, stripes| {
        bar.set_length(stripes);
        bar.set_position(checked);
    };
    let array = Array::of(common.control());
    let found = array.check_volume(&arguments.name, arguments.reconstruct, progress).await?;
    drop(bar);
    report::print(common.json, json(&arguments.name, &found), || text(&found));
    Ok(if found.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

fn named(stripes: &[u64]) -> Vec<u64> {
    stripes.iter().take(NAMED).copied().collect()
}

fn json(volume: &str, found: &Findings) -> Value {
    json!({
        "volume": volume,
        "stripes": found.stripes,
        "checked": found.stripes - found.unchecked,
        "bad": found.bad.len(),
        "unreadable": found.unreadable.len(),
        "unchecked": found.unchecked,
        "missing_devices": found.lacks.iter().map(|device| device.0).collect::<Vec<_>>(),
        "damaged_devices": found.damaged.iter().map(|device| device.0).collect::<Vec<_>>(),
        "first_bad": named(&found.bad),
        "first_unreadable": named(&found.unreadable),
    })
}

fn text(found: &Findings) -> String {
    let (bad, unreadable) = (found.bad.len(), found.unreadable.len());
    let checked = found.stripes - found.unchecked;
    let listed = |devices: &BTreeSet<DeviceId>| devices.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(", ");
    let mut text = match checked {
        0 => format!("none of the {} stripes could be checked\n", found.stripes),
        _ => format!("{checked} of {} stripes checked, {bad} bad, {unreadable} unreadable\n", found.stripes),
    };
    if found.unchecked > 0 {
        let (are, they) = if found.lacks.len() == 1 { ("is", "it is") } else { ("are", "they are") };
        text += &format!(
            "warning: {} stripes were not checked: {} {are} out or being resynchronised; check again once {they} back (`braid status`)\n",
            found.unchecked,
            listed(&found.lacks)
        );
    }
    if bad > 0 {
        text += &format!("bad stripes: {:?}{}\n", named(&found.bad), if bad > NAMED { " and more" } else { "" });
    }
    if unreadable > 0 {
        let more = if unreadable > NAMED { " and more" } else { "" };
        let (stripes, devices) = (named(&found.unreadable), listed(&found.damaged));
        text += &format!("unreadable stripes: {stripes:?}{more}, because of damaged blocks of {devices}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_that_were_not_checked_are_reported() {
        let degraded = Findings { stripes: 10, unchecked: 4, lacks: [DeviceId(2)].into(), ..Findings::default() };
        let shown = json("vol0", &degraded);
        assert_eq!((&shown["checked"], &shown["unchecked"]), (&6.into(), &4.into()));
        assert_eq!(shown["missing_devices"], Value::from(vec![2]));
        let said = text(&degraded);
        assert!(said.starts_with("6 of 10 stripes checked") && said.contains(": d2 is out or"), "{said}");
        let none = Findings { unchecked: 10, ..degraded.clone() };
        assert!(
            text(&none).starts_with("none of the 10 stripes could be checked\nwarning: 10 stripes"),
            "{}",
            text(&none)
        );
        assert_eq!(json("vol0", &none)["checked"], 0);
        let damaged = Findings { unreadable: vec![3], damaged: [DeviceId(1)].into(), ..degraded };
        assert!(text(&damaged).contains("[3], because of damaged blocks of d1"), "{}", text(&damaged));
        assert!(!text(&Findings { stripes: 10, ..Findings::default() }).contains("warning"));
    }
}
