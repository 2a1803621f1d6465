//! Two metadata servers over real sockets: each is a host towards the array, and speaks to the other one as the server that it is, over a
//! connection of its own.

mod toy;

use braid_base::{FileSystemId, Generation, NodeId, Now, ShardId, Time};
use braid_machine::{ArrayRequest, HostEffects, HostOutcome, HostSuccess, Input, Machine, MountRequest, NoDisk, OpId};
use braid_shell::{Address, Addresses, HostClient, Listener, Node, run_service};
use braid_wire::{Message, ShardBody, ShardMessage, ShardQuestion, ShardReply};
use std::time::Duration;
use tokio::sync::watch;
use toy::{ARRAY, Running, heard, in_time};

const RESEND: Duration = Duration::from_millis(20);

/// Asks the other server a question for each request, again and again until it is answered; answers the other one's questions.
struct ToyShard {
    shard: ShardId,
    other: NodeId,
    asked: Vec<OpId>,
    resend_at: Option<Time>,
}

impl ToyShard {
    fn send(&self, body: ShardBody, out: &mut HostEffects) {
        out.send(self.other, Message::Shard(ShardMessage { from: self.shard, body }));
    }

    fn ask_all(&mut self, now: Now, out: &mut HostEffects) {
        for op in &self.asked {
            let (start, question) = (Generation(1), ShardQuestion::Moves);
            self.send(ShardBody::Read { start, number: op.number, question }, out);
        }
        self.resend_at = (!self.asked.is_empty()).then(|| now.time.after(RESEND));
    }
}

impl Machine for ToyShard {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        match input {
            Input::Request { op, .. } => {
                self.asked.push(op);
                self.ask_all(now, out);
            }
            Input::Message { from, message: Message::Shard(message), .. } => {
                assert_eq!(from, self.other, "it speaks as the server that it is");
                match message.body {
                    ShardBody::Read { start, number, .. } => {
                        let reply = Ok(ShardReply::Moves(number));
                        self.send(ShardBody::ReadAnswer { start, number, reply }, out);
                    }
                    ShardBody::ReadAnswer { number, .. } => {
                        if let Some(place) = self.asked.iter().position(|op| op.number == number) {
                            out.reply(self.asked.remove(place), Ok(HostSuccess::Done));
                        }
                    }
                    ShardBody::Commit { .. } | ShardBody::SpaceRequest { .. } | ShardBody::SpaceTransfer { .. } => {}
                }
            }
            Input::Wake => self.ask_all(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.resend_at
    }

    fn invariants(&self) {}
}

struct Server {
    client: HostClient,
    address: Address,
    addresses: watch::Sender<Addresses>,
    running: Running,
}

impl Server {
    async fn start(shard: u8) -> Server {
        let node = |shard: u8| NodeId::MetadataServer(FileSystemId(u16::from(shard) + 1));
        let listener = Listener::bind(&Address::loopback(0)).await.expect("a place to listen at");
        let address = listener.address().clone();
        let (addresses, nodes) = watch::channel(Addresses::new());
        let other = node(1 - shard);
        let machine = ToyShard { shard: ShardId(shard), other, asked: Vec::new(), resend_at: None };
        let us = Node { array: ARRAY, id: NodeId::Host(Generation(u32::from(shard) + 10)) };
        let service = (node(shard), listener);
        let (client, running) =
            Running::start(|counters, stopped| run_service(machine, us, service, nodes, counters, heard(stopped)));
        Server { client, address, addresses, running }
    }

    /// Tells it where the other one is.
    fn follow(&self, other: &Server, shard: u8) {
        let node = NodeId::MetadataServer(FileSystemId(u16::from(shard) + 1));
        self.addresses.send_replace([(node, other.address.clone())].into());
    }

    async fn asks(&self) {
        let asked = in_time(self.client.call(ArrayRequest::Disconnect)).await;
        assert!(asked.is_ok(), "{asked:?}");
    }
}

#[tokio::test]
async fn metadata_servers_ask_each_other_and_follow_one_that_moves() {
    let (first, second) = (Server::start(0).await, Server::start(1).await);
    first.follow(&second, 1);
    second.follow(&first, 0);
    for _ in 0..10 {
        first.asks().await;
        second.asks().await;
    }
    second.running.stop().await;
    // Its heir is elsewhere.
    let heir = Server::start(1).await;
    heir.follow(&first, 0);
    let asking = first.client.clone();
    let asked = tokio::spawn(async move { asking.call(ArrayRequest::Disconnect).await });
    first.follow(&heir, 1);
    assert!(in_time(asked).await.expect("it does not panic").is_ok());
    heir.asks().await;
    for server in [&first, &heir] {
        assert_eq!(server.running.counters.value("connections_refused"), 0);
    }
    first.running.stop().await;
    heir.running.stop().await;
}
