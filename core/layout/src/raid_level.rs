//! A RAID level with its parameters, also called a layout's scheme. In commands it is written `raid0:5`, `raid1:2` or `raid5:4+1`.

use braid_base::limits::PARTICIPANTS_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The units of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RaidLevel {
    /// Striping: data units without redundancy.
    Raid0 {
        /// Data units of a stripe.
        data: usize,
    },
    /// Mirroring: one data unit in several copies, including the first.
    Raid1 {
        /// Copies of each unit.
        copies: usize,
    },
    /// Striping with one parity unit.
    Raid5 {
        /// Data units of a stripe.
        data: usize,
    },
}

impl RaidLevel {
    /// k: data units of a stripe.
    pub fn data_units(self) -> usize {
        match self {
            RaidLevel::Raid0 { data } | RaidLevel::Raid5 { data } => data,
            RaidLevel::Raid1 { .. } => 1,
        }
    }

    /// m: redundancy units of a stripe, which is also the number of lost units that it tolerates. Each is the XOR of all data units; for
    /// the single data unit of RAID 1, that is a copy.
    pub fn redundancy_units(self) -> usize {
        match self {
            RaidLevel::Raid0 { .. } => 0,
            RaidLevel::Raid1 { copies } => copies - 1,
            RaidLevel::Raid5 { .. } => 1,
        }
    }

    /// w = k + m: units of a stripe, and the least number of devices.
    pub fn width(self) -> usize {
        self.data_units() + self.redundancy_units()
    }

    pub fn check(self) -> Result<(), RaidLevelError> {
        match self {
            RaidLevel::Raid0 { data: 0 } => Err(RaidLevelError::NoData),
            RaidLevel::Raid1 { copies: 0 | 1 } => Err(RaidLevelError::OneCopy),
            RaidLevel::Raid5 { data: 0 | 1 } => Err(RaidLevelError::OneDataUnit),
            // In this order, since a sum with a data unit too many could overflow.
            _ if self.data_units() > PARTICIPANTS_MAX || self.width() > PARTICIPANTS_MAX => {
                Err(RaidLevelError::TooWide { most: PARTICIPANTS_MAX })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for RaidLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RaidLevel::Raid0 { data } => write!(f, "raid0:{data}"),
            RaidLevel::Raid1 { copies } => write!(f, "raid1:{copies}"),
            RaidLevel::Raid5 { data } => write!(f, "raid5:{data}+1"),
        }
    }
}

impl FromStr for RaidLevel {
    type Err = RaidLevelError;

    fn from_str(text: &str) -> Result<RaidLevel, RaidLevelError> {
        let unknown = || RaidLevelError::Unknown { text: text.to_string() };
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| unknown());
        let (level, numbers) = text.split_once(':').ok_or_else(unknown)?;
        let scheme = match level {
            "raid0" => RaidLevel::Raid0 { data: number(numbers)? },
            "raid1" => RaidLevel::Raid1 { copies: number(numbers)? },
            "raid5" => {
                let (data, parity) = numbers.split_once('+').ok_or_else(unknown)?;
                if number(parity)? != 1 {
                    return Err(RaidLevelError::NotOneParity { data: number(data)? });
                }
                RaidLevel::Raid5 { data: number(data)? }
            }
            _ => return Err(unknown()),
        };
        scheme.check()?;
        Ok(scheme)
    }
}

/// Why a scheme is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaidLevelError {
    #[error(
        "'{text}' is not a layout: write raid0:DEVICES, raid1:COPIES or raid5:DATA+1, such as raid5:4+1, raid1:2 or raid0:5"
    )]
    Unknown { text: String },
    #[error("raid5 has exactly one parity unit: write raid5:{data}+1")]
    NotOneParity {
        /// The number of data units in the text.
        data: usize,
    },
    #[error("raid0 needs at least one device: write raid0:1 or more")]
    NoData,
    #[error("raid1 needs at least two copies: write raid1:2, or raid0:1 for no redundancy")]
    OneCopy,
    #[error("raid5 needs at least two data units: write raid5:2+1 or more, or raid1:2 for two copies")]
    OneDataUnit,
    /// More units than devices may take part in a transaction.
    #[error("a stripe has at most {most} units: choose a narrower layout")]
    TooWide { most: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_written() {
        for (text, k, m) in
            [("raid0:1", 1, 0), ("raid0:5", 5, 0), ("raid1:2", 1, 1), ("raid1:3", 1, 2), ("raid5:4+1", 4, 1)]
        {
            let scheme: RaidLevel = text.parse().unwrap();
            assert_eq!((scheme.data_units(), scheme.redundancy_units()), (k, m), "{text}");
            assert_eq!(scheme.to_string(), text);
        }
    }

    #[test]
    fn wrong_schemes_are_refused_with_advice() {
        for (text, advice) in [
            ("raid6:4+2", "raid5:4+1"),
            ("raid5", "raid5:DATA+1"),
            ("raid5:4", "raid5:DATA+1"),
            ("raid5:4+2", "raid5:4+1"),
            ("raid5:x+1", "raid5:DATA+1"),
            ("raid5:1+1", "raid1:2"),
            ("raid5:18446744073709551615+1", "narrower"),
            ("raid1:18446744073709551615", "narrower"),
            ("raid1:1", "raid1:2"),
            ("raid1:0", "raid1:2"),
            ("raid0:0", "raid0:1"),
            ("", "raid5:4+1"),
        ] {
            let error = text.parse::<RaidLevel>().unwrap_err().to_string();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn a_stripe_is_no_wider_than_a_transaction() {
        assert_eq!(RaidLevel::Raid5 { data: PARTICIPANTS_MAX - 1 }.check(), Ok(()));
        assert_eq!(
            RaidLevel::Raid5 { data: PARTICIPANTS_MAX }.check(),
            Err(RaidLevelError::TooWide { most: PARTICIPANTS_MAX })
        );
    }
}
