//! The format of an item's state. Each state has a different length, since a list of attributes returns lengths and no values. The length
//! never grows from put to finish, since a device without space refuses values that grow: it must be possible to work off a full queue.
//!
//! ```text
//!    fresh       0  0 (8)  zeros                                     35 bytes
//!    given back  0  token  zeros                                     34 bytes
//!    claimed     1  token  consumer  nonce  heartbeat               33 bytes
//! ```

use crate::procedure::RequestFailure;
use crate::request_builder::DAMAGED;
use bytes::{BufMut, Bytes, BytesMut};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Any consumer may claim it; `token` claims were made before.
    Free { token: u64 },
    /// A consumer works on it.
    Claimed(Claim),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: u64,
    pub(super) consumer: u64,
    pub(super) nonce: u64,
    /// Rises when the claim is renewed.
    pub(super) heartbeat: u64,
}

pub(super) const FRESH_BYTES: u32 = 35;
pub(super) const GIVEN_BACK_BYTES: u32 = 34;
const CLAIMED_BYTES: u32 = 33;

const FREE: u8 = 0;
const CLAIMED: u8 = 1;

impl State {
    pub(super) const FRESH: State = State::Free { token: 0 };

    pub(super) fn encode(self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            State::Free { token } => {
                let length = if token == 0 { FRESH_BYTES } else { GIVEN_BACK_BYTES };
                bytes.put_u8(FREE);
                bytes.put_u64(token);
                bytes.resize(length as usize, 0);
            }
            State::Claimed(Claim { token, consumer, nonce, heartbeat }) => {
                bytes.put_u8(CLAIMED);
                for word in [token, consumer, nonce, heartbeat] {
                    bytes.put_u64(word);
                }
            }
        }
        bytes.freeze()
    }

    /// `None` if there is no item.
    pub(super) fn decode(bytes: &Bytes) -> Result<Option<State>, RequestFailure> {
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Some(match (bytes.len() as u32, bytes.first()) {
            (0, _) => return Ok(None),
            (FRESH_BYTES, Some(&FREE)) if word(1) == 0 => State::FRESH,
            (GIVEN_BACK_BYTES, Some(&FREE)) if word(1) > 0 => State::Free { token: word(1) },
            (CLAIMED_BYTES, Some(&CLAIMED)) => {
                State::Claimed(Claim { token: word(1), consumer: word(9), nonce: word(17), heartbeat: word(25) })
            }
            _ => return Err(DAMAGED),
        }))
    }

    /// The number of claims so far.
    pub(super) fn token(self) -> u64 {
        match self {
            State::Free { token } | State::Claimed(Claim { token, .. }) => token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_queue_state_has_its_own_encoded_length() {
        let claim = Claim { token: 1, consumer: 2, nonce: 3, heartbeat: 4 };
        assert_eq!(State::FRESH.encode().len() as u32, FRESH_BYTES);
        assert_eq!(State::Free { token: 1 }.encode().len() as u32, GIVEN_BACK_BYTES);
        assert_eq!(State::Claimed(claim).encode().len() as u32, CLAIMED_BYTES);
    }

    proptest! {
        #[test]
        fn entries_survive_encoding_and_decoding(token: u64, consumer: u64, nonce: u64, heartbeat: u64) {
            for state in [State::Free { token }, State::Claimed(Claim { token, consumer, nonce, heartbeat })] {
                prop_assert_eq!(State::decode(&state.encode()), Ok(Some(state)));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = State::decode(&bytes.into());
        }
    }
}
