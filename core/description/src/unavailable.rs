//! What requests for blocks do that need devices which are missing: they fail at once, or they wait. A setting of a volume, which a server
//! may override (`docs/nbd.md`), and of a file system, which a mount may override (`docs/files.md`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest time, in seconds: a year.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

/// What requests do while devices are missing that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum WhenUnavailable {
    /// They fail at once.
    Fail,
    /// They wait, however long.
    Wait,
    /// They wait for so long, in whole seconds, and then they fail.
    WaitFor(Duration),
}

impl WhenUnavailable {
    /// A device that restarts, a switch that reboots or a monitor that is moved is back within a minute, and file systems should survive
    /// that: an error makes most of them read-only. Two minutes, after which kernels complain of hung tasks, are too long: beside this time
    /// a request may take the host's time-out of half a minute.
    pub const DEFAULT: WhenUnavailable = WhenUnavailable::WaitFor(Duration::from_secs(60));

    /// How long requests wait; none: without limit.
    pub fn limit(self) -> Option<Duration> {
        match self {
            WhenUnavailable::Fail => Some(Duration::ZERO),
            WhenUnavailable::Wait => None,
            WhenUnavailable::WaitFor(span) => Some(span),
        }
    }
}

impl fmt::Display for WhenUnavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhenUnavailable::Fail => formatter.write_str("fail"),
            WhenUnavailable::Wait => formatter.write_str("wait"),
            WhenUnavailable::WaitFor(span) => write!(formatter, "{}s", span.as_secs()),
        }
    }
}

impl FromStr for WhenUnavailable {
    type Err = String;

    fn from_str(text: &str) -> Result<WhenUnavailable, String> {
        match text {
            "fail" => Ok(WhenUnavailable::Fail),
            "wait" => Ok(WhenUnavailable::Wait),
            _ => match braid_base::units::parse_span(text) {
                Ok(span) if span.as_secs() > SECONDS_MAX => Err(format!("'{text}' is too long: write wait")),
                Ok(Duration::ZERO) => Ok(WhenUnavailable::Fail),
                Ok(span) => Ok(WhenUnavailable::WaitFor(span)),
                Err(_) => Err(format!("'{text}' is neither fail nor wait nor a time such as 60s or 5m")),
            },
        }
    }
}

impl From<WhenUnavailable> for String {
    fn from(setting: WhenUnavailable) -> String {
        setting.to_string()
    }
}

impl TryFrom<String> for WhenUnavailable {
    type Error = String;

    fn try_from(text: String) -> Result<WhenUnavailable, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailability_policy_is_read_as_it_is_written() {
        for text in ["fail", "wait", "60s", "7200s"] {
            assert_eq!(text.parse::<WhenUnavailable>().unwrap().to_string(), text);
        }
        assert_eq!("2m".parse(), Ok(WhenUnavailable::WaitFor(Duration::from_secs(120))));
        assert_eq!("0".parse(), Ok(WhenUnavailable::Fail));
        for wrong in ["", "never", "5d", "-1s", "400000000s"] {
            assert!(wrong.parse::<WhenUnavailable>().is_err(), "{wrong}");
        }
    }
}
