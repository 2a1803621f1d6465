//! Fencing of silent hosts: a host whose lease has expired is fenced, so that no device serves it from then on. The fencer is pure
//! (`braid_host_leases::Fencer`); here it is driven, with the array's folder as the table of leases.

use braid_base::Generation;
use braid_control::{ControlError, ControlPlane, Leases, Moment, until_next};
use braid_host_leases::{Answer, Fence, Fencer, Question, SweepLimits};
use braid_machine::ArrayRequest;
use braid_session::HostView;
use braid_shell::HostClient;

/// Runs until dropped, with the host `own`.
pub async fn keep_fenced(control: ControlPlane, leases: Leases, own: Generation, client: HostClient, view: HostView) {
    // By the first round each living host has renewed its lease, if it could not for a while.
    let round = 4 * leases.heartbeat();
    let mut fencer = Fencer::new(own, leases.host(), round, SweepLimits::default());
    fencer.start(&Moment::now());
    tokio::time::sleep(round).await;
    loop {
        tokio::time::sleep(until_next(round)).await;
        let mut next = Some(fencer.begin(Moment::now().into()));
        while let Some(question) = next {
            let answer = answer(&control, &client, &view, question).await;
            next = fencer.on_answer(&Moment::now(), answer);
        }
    }
}

async fn answer(control: &ControlPlane, client: &HostClient, view: &HostView, question: Question) -> Answer {
    match question {
        Question::Expire { by, now, allowed } => {
            match control.leases().expire(by, now.into(), allowed).await {
                Ok(expired) => return Answer::Expired(expired, view.fence()),
                // This host itself has lost its lease; its session reports that, and ends this task.
                Err(ControlError::LeaseLost { .. }) => {}
                Err(error) => tracing::warn!("can't determine which hosts are dead: {error}"),
            }
        }
        Question::Fence(Fence { below, except }) => match client.call(ArrayRequest::Fence { below, except }).await {
            Ok(_) => return Answer::Done,
            Err(error) => tracing::info!("could not tell the monitor which hosts are dead; trying again: {error}"),
        },
        Question::Forget(gone) => match control.leases().forget(gone).await {
            Ok(()) => return Answer::Done,
            Err(error) => tracing::info!("could not forget hosts that are fenced; trying again: {error}"),
        },
    }
    Answer::Unknown
}
