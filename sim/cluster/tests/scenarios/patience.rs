//! Scenarios of operations of endless patience: they wait for what is missing, however long, and go on by themselves.

use crate::story::*;
use braid_cluster::workload::ClientOperation;

const TWO_MINUTES: Duration = Duration::from_secs(120);

fn endless(array: &mut Cluster, host: HostSlot, client: usize, operation: ClientOperation) -> OpId {
    array.operation_with(host, client, operation, Patience::Endless)
}

#[test]
fn with_two_devices_away_for_two_minutes_they_wait_and_then_succeed() {
    with_each_pair(KEPT_APART, [false, true], filled_array_by, |array, [a, b], ordering, is_under_way| {
        if !is_under_way {
            array.crash(device(0));
            array.crash(device(4));
            array.run_for(A_WHILE);
        }
        let write = endless(array, a, 0, ClientOperation::Write { offset: 0, length: BLOCK });
        let zero = endless(array, b, 1, ClientOperation::Zero { offset: 5 * BLOCK, length: BLOCK });
        let read = endless(array, b, 0, ClientOperation::Read { offset: 0, length: BLOCK });
        if is_under_way {
            array.run_for(Duration::from_micros(300));
            array.crash(device(0));
            array.crash(device(4));
        }
        // Others fail as ever.
        array.run_for(A_WHILE);
        let bounded = array.operation(a, 2, ClientOperation::Write { offset: 2 * BLOCK, length: 3 * BLOCK });
        let outcome = array.finish(bounded);
        assert!(
            matches!(
                outcome,
                Err(HostError::Unavailable { .. } | HostError::TimedOut { .. } | HostError::Contended { .. })
            ),
            "{ordering}: {outcome:?}"
        );
        array.run_for(TWO_MINUTES);
        let still = [write, zero, read].iter().filter(|op| array.requests.is_open(**op)).count();
        assert!(is_under_way || still >= 2, "{ordering}: {still} wait");
        array.restart_device(DeviceId(0));
        array.run_for(Duration::from_secs(1));
        array.restart_device(DeviceId(4));
        assert_eq!(array.finish(write), DONE, "{ordering}");
        assert_eq!(array.finish(zero), DONE, "{ordering}");
        assert!(matches!(array.finish(read), Ok(HostSuccess::Data(_))), "{ordering}");
    });
}
