use super::*;

fn component(name: &'static str, after: Vec<Condition>) -> Component {
    Component {
        name,
        program: name,
        args: Vec::new(),
        after,
    }
}

#[test]
fn a_component_waits_for_its_conditions_without_delaying_others() {
    let now = Instant::now();
    let registered = Condition::Path("/registered".into());
    let mut supervisor = Supervisor::new(
        vec![
            component("containerd", vec![]),
            component("kubelet", vec![registered.clone()]),
        ],
        now,
    );

    assert_eq!(supervisor.poll(now, |_| false), [Action::Start(0)]);
    supervisor.handle_start(0, Some(7), now);
    let next = supervisor.poll_timeout().unwrap();
    assert_eq!(next, now + CHECK_INTERVAL);
    assert_eq!(
        supervisor.poll(next, |condition| *condition == registered),
        [Action::Start(1)]
    );
}

#[test]
fn a_component_that_ends_is_restarted_after_the_backoff() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(vec![component("etcd", vec![])], now);
    supervisor.poll(now, |_| true);
    supervisor.handle_start(0, Some(7), now);

    assert_eq!(supervisor.handle_end(7, now), Some("etcd"));
    assert_eq!(supervisor.handle_end(99, now), None);

    assert_eq!(supervisor.poll(now, |_| true), []);
    assert_eq!(supervisor.poll(now + BACKOFF, |_| true), [Action::Start(0)]);
}

#[test]
fn a_failed_start_is_retried_after_the_backoff() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(vec![component("etcd", vec![])], now);
    supervisor.poll(now, |_| true);

    supervisor.handle_start(0, None, now);

    assert_eq!(supervisor.poll_timeout(), Some(now + BACKOFF));
}

#[test]
fn a_stopped_component_is_not_restarted_until_a_request() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(vec![component("kubelet", vec![])], now);
    supervisor.poll(now, |_| true);
    supervisor.handle_start(0, Some(7), now);

    let (_, action) = supervisor.handle_request(&Request::Stop("kubelet".into()), now);
    supervisor.handle_end(7, now);

    assert_eq!(action, Some(Action::Signal(7, nix::libc::SIGTERM)));
    assert_eq!(supervisor.poll(now + BACKOFF * 2, |_| true), []);
    assert_eq!(supervisor.poll_timeout(), None);
    let (_, action) = supervisor.handle_request(&Request::Start("kubelet".into()), now);
    assert_eq!(action, None);
    assert_eq!(supervisor.poll(now, |_| true), [Action::Start(0)]);
}

#[test]
fn the_error_for_an_unknown_component_lists_the_known() {
    let now = Instant::now();
    let mut supervisor = Supervisor::new(vec![component("etcd", vec![])], now);

    let (reply, action) = supervisor.handle_request(&Request::Stop("dockerd".into()), now);

    assert_eq!(action, None);
    assert_eq!(
        reply,
        Reply::Error("no component \"dockerd\": there are etcd".into())
    );
}
