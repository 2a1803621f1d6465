//! Scenarios of fences. A fence is final: when it is answered, each write of the fenced host has taken effect, or never will, and
//! content read afterwards stays.

use crate::story::*;

/// A host dies in the middle of a write that device `lacking` never received. Another host has it fenced and reads, and then that
/// device dies. The host that resolves the write is slow.
fn read_then_lose(layout: &str, devices: usize, ordering: Ordering, lacking: u16) {
    let (mut array, a, b) = array_of(ordered(ordering, Options::calm(layout, devices, 1, 3)));
    fill(&mut array, b);
    let (writer, generation) = (array.node(a), array.generation(a));
    array.world.network.drop_if(move |from, to, message| from == writer && to == device(lacking) && is_write(message));
    array.write(a, 0, BLOCK);
    array.run_for(Duration::from_millis(20));
    array.crash(writer);
    array.world.network.delay_if(Duration::from_millis(200), |_, _, message| is_resolve(message));
    fence(&mut array, b, generation);
    let seen = content(&mut array, b, 0, BLOCK);
    lose(&mut array, lacking);
    let after = content(&mut array, b, 0, BLOCK);
    assert!(after == seen, "{layout}, {ordering}: a write took effect without {lacking} after its host was fenced");
    bring_back(&mut array, lacking);
    // Then the devices fail in turn that have the write, or may have it.
    for other in (0..devices as u16).filter(|other| *other != lacking) {
        let stays = content(&mut array, b, 0, BLOCK) == seen;
        assert!(stays, "{layout}, {ordering}: content that was read must stay");
        lose(&mut array, other);
        let stays = content(&mut array, b, 0, BLOCK) == seen;
        assert!(stays, "{layout}, {ordering}: content that was read must stay without {other}");
        bring_back(&mut array, other);
    }
    assert!(content(&mut array, b, 0, BLOCK) == seen, "{layout}, {ordering}: content that was read must stay");
    take_slot(&mut array, a);
    all_is_well(array);
}

#[test]
fn a_read_after_a_fence_stands_when_the_device_dies_that_lacked_the_write() {
    for ordering in KEPT_APART {
        for lacking in [0, 1] {
            read_then_lose("raid1:2", 2, ordering, lacking);
            read_then_lose("raid1:3", 3, ordering, lacking);
        }
        // Block 0 is on device 0, its parity on device 4.
        for lacking in [0, 4] {
            read_then_lose("raid5:4+1", 5, ordering, lacking);
        }
    }
}
