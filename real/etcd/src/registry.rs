//! The keys of one array in etcd: `/braid/UUID/head`, and what is written with it.

use crate::head_value;
use crate::members::Members;
use crate::messages::{
    Compare, Compared, DeleteRangeRequest, KeyValue, Operation, PutRequest, RANGE, RangeRequest, RangeResponse,
    RequestOp, Response, TXN, TxnRequest, TxnResponse,
};
use braid_base::ArrayId;
use braid_leadership::Head;
use braid_leadership::times::PATIENCE;
use braid_registrar::{Change, Content, EntryError, Keys};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

/// An answer may be so large: an array of 1,024 devices and 1,000 volumes has 0.6 MB of keys.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The keys of one array.
#[derive(Debug)]
pub struct Registry {
    members: Members,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    Done,
    /// Nothing was changed, because `head` was this; none if there was no such key.
    Differs(Option<Head>),
}

/// Why a call says nothing. It may have had its effect, or may have it later.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{endpoint} is no address of etcd: {why}")]
    Endpoint { endpoint: String, why: String },
    #[error("etcd at {endpoint} has not answered within {PATIENCE:?}")]
    Silent { endpoint: String },
    #[error("etcd at {endpoint}: {why}")]
    Refused { endpoint: String, why: String },
    #[error("the key {key} in etcd was not written by Braid: {why}")]
    Strange { key: &'static str, why: String },
    #[error(transparent)]
    Entries(#[from] EntryError),
}

impl Registry {
    /// `endpoints`: of the members of etcd, such as `http://10.77.0.1:2379`. Nothing is sent before the first call.
    pub fn new(endpoints: &[String], array: ArrayId) -> Result<Registry, RegistryError> {
        Ok(Registry { members: Members::new(endpoints, PATIENCE)?, prefix: format!("/braid/{array}/") })
    }

    /// Makes `head`, and the keys of an array with this content, whose monitor has recorded nothing. False if there is a `head` already.
    pub async fn create(&self, head: &Head, content: &Content) -> Result<bool, RegistryError> {
        Ok(self.replace(None, head, &content.changes()?).await? == Swapped::Done)
    }

    pub async fn head(&self) -> Result<Option<Head>, RegistryError> {
        let request = RangeRequest { key: self.key("head"), range_end: Vec::new() };
        let found: RangeResponse = self.call(RANGE, request).await?;
        found.kvs.first().map(|found| head_value::decode(&found.value)).transpose()
    }

    /// `head`, and the values of all other keys, without the prefix, as they were at one moment. What they say, a registrar finds out: if it
    /// can't read one, it leaves the array to another one.
    pub async fn read_all(&self) -> Result<(Option<Head>, Keys), RegistryError> {
        let key = self.key("");
        // The first key that does not begin with the prefix, which ends with a slash.
        let range_end = [&key[..key.len() - 1], b"0"].concat();
        let found: RangeResponse = self.call(RANGE, RangeRequest { key, range_end }).await?;
        let name = |found: &KeyValue| String::from_utf8_lossy(&found.key[self.prefix.len()..]).into_owned();
        let mut keys: Keys = found.kvs.into_iter().map(|found| (name(&found), found.value.into())).collect();
        let head = keys.remove("head").map(|value| head_value::decode(&value)).transpose()?;
        Ok((head, keys))
    }

    /// If `head` is `expected`, makes it `head` and makes the changes, in one transaction.
    pub async fn swap(&self, expected: &Head, head: &Head, changes: &[Change]) -> Result<Swapped, RegistryError> {
        self.replace(Some(expected), head, changes).await
    }

    /// The same; with none, if there is no `head`.
    pub async fn replace(
        &self,
        expected: Option<&Head>,
        head: &Head,
        changes: &[Change],
    ) -> Result<Swapped, RegistryError> {
        let (target, compared) = match expected {
            None => (Compare::CREATED, Compared::Created(0)),
            Some(expected) => (Compare::VALUE, Compared::Value(head_value::encode(expected))),
        };
        let same = Compare { target, key: self.key("head"), compared: Some(compared) };
        let answer = self.transact(same, head, changes).await?;
        if answer.succeeded {
            return Ok(Swapped::Done);
        }
        let found = answer.responses.into_iter().find_map(|answer| match answer.response {
            Some(Response::Range(found)) => found.kvs.into_iter().next(),
            None => None,
        });
        Ok(Swapped::Differs(found.map(|found| head_value::decode(&found.value)).transpose()?))
    }

    /// Otherwise, reads `head`.
    async fn transact(&self, compare: Compare, head: &Head, changes: &[Change]) -> Result<TxnResponse, RegistryError> {
        let put = |key: &str, value| Operation::Put(PutRequest { key: self.key(key), value });
        let change = |Change { key, value }: &Change| match value {
            Some(value) => put(&key.to_string(), value.to_vec()),
            None => Operation::Delete(DeleteRangeRequest { key: self.key(&key.to_string()) }),
        };
        let operations = [put("head", head_value::encode(head))].into_iter().chain(changes.iter().map(change));
        let read = Operation::Range(RangeRequest { key: self.key("head"), range_end: Vec::new() });
        let request = |operation| RequestOp { operation: Some(operation) };
        let transaction = TxnRequest {
            compare: vec![compare],
            success: operations.map(request).collect(),
            failure: vec![request(read)],
        };
        self.call(TXN, transaction).await
    }

    /// One call to one member.
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, RegistryError>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let chosen = self.members.choose();
        let endpoint = || chosen.endpoint.clone();
        let called = async {
            let mut client = Grpc::new(chosen.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
            let ready = client.ready().await;
            ready.map_err(|error| RegistryError::Refused { endpoint: endpoint(), why: error.to_string() })?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = client.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await;
            answer.map_err(|status| RegistryError::Refused { endpoint: endpoint(), why: status.message().into() })
        };
        let answer = tokio::time::timeout(PATIENCE, called).await;
        match answer.unwrap_or_else(|_| Err(RegistryError::Silent { endpoint: endpoint() })) {
            Ok(answer) => {
                self.members.accept(&chosen);
                Ok(answer.into_inner())
            }
            Err(error) => {
                self.members.avoid(&chosen);
                Err(error)
            }
        }
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), name.as_bytes()].concat()
    }
}
