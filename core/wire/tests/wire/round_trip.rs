//! Decoding an encoded message yields the same message.

use crate::any;
use crate::limits::*;
use braid_wire::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_comes_back_as_it_was_sent(frame in any::frame()) {
        let encoded = frame.encode();
        let bytes = encoded.to_bytes();
        prop_assert_eq!(bytes.len(), encoded.len());
        prop_assert_eq!(&[&encoded.head[..], &encoded.payload.concat()].concat(), &bytes);
        let header = Frame::header(&bytes);
        let payload_bytes = encoded.payload.iter().map(bytes::Bytes::len).sum();
        prop_assert_eq!(&header, &Ok(Some(FrameHeader { frame_bytes: bytes.len(), payload_bytes, array: frame.array })));
        prop_assert_eq!(Frame::header(&bytes[..64]), header);
        prop_assert_eq!(Frame::decode(bytes), Ok(frame));
    }
}

#[test]
fn bulk_data_is_shared_and_not_copied() {
    let data = Bytes::from(vec![7; 2 * BLOCK_BYTES]);
    let pieces = vec![Piece { range: BlockRange::new(4, 2), content: Content::Data(data.clone()) }];
    let transaction = TransactionId { host: Generation(7), sequence: 1 };
    let reply = Reply::Data { transaction, waited: false, pieces };
    let message = Message::Answer(Answer { epoch: Epoch(1), confirmed: vec![], reply });
    let (from, to) = (NodeId::Device(DeviceId(2)), NodeId::Host(Generation(7)));
    let encoded = Frame { array: ArrayId([1; 16]), from, to, message }.encode();
    assert_eq!(encoded.payload[0].as_ptr(), data.as_ptr());

    let bytes = encoded.to_bytes();
    let Message::Answer(Answer { reply: Reply::Data { pieces, .. }, .. }) =
        Frame::decode(bytes.clone()).unwrap().message
    else {
        panic!("another message came back");
    };
    let Content::Data(taken) = &pieces[0].content else { panic!("the data did not come back") };
    assert_eq!(taken.as_ptr(), bytes[encoded.head.len()..].as_ptr());
}
