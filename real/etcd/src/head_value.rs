//! The value of the key `head`: JSON with a fixed order of fields, so that a head has one value and values can be compared.

use crate::RegistryError;
use braid_leadership::{CandidateId, Head, Nonce};
use serde::{Deserialize, Serialize};

/// Of this format.
const SCHEMA: u32 = 1;
const FIELDS: &str = "schema, term, nonce, seq, leader and candidates";

#[derive(Serialize, Deserialize)]
struct HeadValue {
    schema: u32,
    term: u64,
    /// Hexadecimal.
    nonce: String,
    seq: u64,
    leader: Option<u16>,
    candidates: Vec<u16>,
}

pub(crate) fn encode(head: &Head) -> Vec<u8> {
    let value = HeadValue {
        schema: SCHEMA,
        term: head.term,
        nonce: format!("{:032x}", head.nonce.0),
        seq: head.seq,
        leader: head.leader.map(|leader| leader.0),
        candidates: head.candidates.iter().map(|candidate| candidate.0).collect(),
    };
    serde_json::to_vec(&value).expect("numbers and strings")
}

/// Refuses a value that [`encode`] would not make: it could not be compared.
pub(crate) fn decode(bytes: &[u8]) -> Result<Head, RegistryError> {
    let strange = |why: String| RegistryError::Strange { key: "head", why };
    let value: HeadValue = serde_json::from_slice(bytes).map_err(|error| strange(error.to_string()))?;
    if value.schema > SCHEMA {
        return Err(strange(format!("it has schema {}, and this release knows {SCHEMA}", value.schema)));
    }
    let nonce = u128::from_str_radix(&value.nonce, 16).map_err(|error| strange(format!("nonce: {error}")))?;
    let head = Head {
        term: value.term,
        nonce: Nonce(nonce),
        seq: value.seq,
        leader: value.leader.map(CandidateId),
        candidates: value.candidates.into_iter().map(CandidateId).collect(),
    };
    if encode(&head) == bytes { Ok(head) } else { Err(strange(format!("more or less than {FIELDS}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_one_value_and_any_other_is_refused() {
        let candidates = [1, 2, 700].map(CandidateId).into();
        let head =
            Head { term: 3, nonce: Nonce(1 << 127 | 5), seq: u64::MAX, leader: Some(CandidateId(2)), candidates };
        for head in [Head::first([].into()), Head { leader: None, ..head.clone() }, head] {
            let value = encode(&head);
            assert_eq!(decode(&value).expect("a head"), head);
            let text = String::from_utf8(value).expect("JSON");
            let others = [
                text.replace(":1,", ":2,"),
                text.replace('}', ",\"level\":7}"),
                text.replace(':', ": "),
                text.replace("\"nonce\":\"", "\"nonce\":\"x"),
                text[1..].into(),
            ];
            others.iter().for_each(|other| assert!(decode(other.as_bytes()).is_err(), "{other}"));
        }
    }
}
