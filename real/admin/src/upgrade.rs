//! The upgrade of an array: which programs are of the release before, and raising the level when there are none (`docs/upgrades.md`).

use crate::array::{Array, await_until};
use crate::device_lifecycle::administer;
use crate::failure::Failure;
use braid_base::Level;
use braid_control::{ControlError, UpgradeReport};
use braid_wire::Administration;
use std::time::Duration;

/// The monitor publishes a change within half a second.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);

impl Array {
    /// The level of the array, and which programs keep it from being raised, as the monitor last published it. Errors: `no-monitor`.
    pub async fn upgrade(&self) -> Result<UpgradeReport, Failure> {
        let no_monitor = || {
            let message = "the level is unknown, because the array's monitor is not running";
            Failure::unreachable("no-monitor", message).hint("`braid status` shows why; start it with `braid up`")
        };
        self.control().describe().await?;
        Ok(self.control().monitor().await?.ok_or_else(no_monitor)?.report.upgrade)
    }

    /// The machines whose monitors keep the level from being raised: they lead, or may lead, and do not say that they know the next one.
    pub async fn older_monitors(&self, report: &UpgradeReport) -> Result<Vec<String>, Failure> {
        match (self.control().cluster(), report.next()) {
            (Some(cluster), Some(next)) => Ok(cluster.older_monitors(next).await?),
            _ => Ok(Vec::new()),
        }
    }

    /// Raises the level of the array to the next one. No program of the release before can serve it, or be served, from then on. Returns
    /// the level, which is the same as before if this release knows no higher one. Errors: `older-programs`, `release-too-old`, `not-up`, `no-monitor`.
    pub async fn finish_upgrade(&self) -> Result<Level, Failure> {
        let report = self.upgrade().await?;
        let (before, level) = (report.level, report.next().unwrap_or(report.level));
        if level > Level::KNOWN {
            let message = format!("this release does not know level {level}: finish the upgrade with the new release");
            return Err(Failure::failed("release-too-old", message));
        }
        let older = self.older_monitors(&report).await?;
        if !older.is_empty() {
            let message = format!("monitors that do not know level {level}, or do not answer: {}", older.join(", "));
            let hint =
                "start these machines with the new release; `braid cluster remove` gives up one that comes never again";
            return Err(Failure::failed("older-programs", message).hint(hint));
        }
        self.with_host("upgrade finish", async |session| {
            if level > before {
                administer(session.client(), Administration::RaiseLevel { level }).await?;
            }
            // An earlier attempt may have ended before this.
            let described = async || Ok::<_, Failure>(session.control().describe().await?.level);
            if described().await? < level {
                session
                    .control()
                    .update(|description| {
                        description.level = description.level.max(level);
                        Ok::<_, ControlError>(())
                    })
                    .await?;
            }
            let is_shown = async || Ok(self.upgrade().await?.level >= level);
            await_until(session.control(), SHOWN_WITHIN, is_shown).await?;
            Ok(level)
        })
        .await
    }
}
