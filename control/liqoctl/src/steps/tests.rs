//! Simulated steps: order, failure, resumption and undo.

use super::*;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

type Log = Rc<RefCell<Vec<String>>>;

/// A step of a simulated cluster.
struct Simulated {
    name: &'static str,
    /// Later observations; the last one repeats.
    states: RefCell<VecDeque<State<u32>>>,
    refusal: Option<&'static str>,
    log: Log,
}

impl Simulated {
    fn new(log: &Log, name: &'static str, states: &[State<u32>]) -> Self {
        Self {
            name,
            states: RefCell::new(states.iter().cloned().collect()),
            refusal: None,
            log: Rc::clone(log),
        }
    }

    fn record(&self, call: &str) {
        self.log.borrow_mut().push(format!("{call} {}", self.name));
    }
}

impl Step for Simulated {
    type Desired = ();
    type Output = u32;

    fn lines(&self) -> Lines {
        let lines = |verb: &str, done: &str| {
            let name = self.name;
            Some((format!("{verb} {name}"), format!("{name} {done}")))
        };
        Lines {
            scope: "local",
            apply: lines("Creating", "created"),
            wait: lines("Waiting for", "ready"),
            goal: "creating it",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<u32>> {
        let mut states = self.states.borrow_mut();
        let state = match states.len() {
            1 => states.front().cloned(),
            _ => states.pop_front(),
        };
        Ok(state.expect("a state"))
    }

    async fn apply(&self, (): &()) -> Result<()> {
        self.record("apply");
        match self.refusal {
            Some(reason) => Err(anyhow!(reason)),
            None => Ok(()),
        }
    }

    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        Some(Box::new(SimulatedRemoval(self)))
    }
}

struct SimulatedRemoval<'a>(&'a Simulated);

impl Undo for SimulatedRemoval<'_> {
    fn scope(&self) -> &'static str {
        "local"
    }

    fn noun(&self) -> &'static str {
        self.0.name
    }

    fn delete(&self) -> LocalBoxFuture<'_, Result<bool>> {
        async {
            self.0.record("delete");
            match self.0.refusal {
                Some(reason) => Err(anyhow!(reason)),
                None => Ok(true),
            }
        }
        .boxed_local()
    }

    fn remaining(&self) -> LocalBoxFuture<'_, Result<Option<String>>> {
        async {
            self.0.record("remaining");
            Ok(None)
        }
        .boxed_local()
    }
}

fn waiting() -> State<u32> {
    State::Waiting("no address".to_owned())
}

async fn run<T>(command: impl AsyncFnOnce(&Runner) -> Result<T>) -> Result<T> {
    progress::take_lines();
    Runner::run(Deadline::after(Duration::from_secs(9)), command).await
}

#[tokio::test(start_paused = true)]
async fn a_step_is_applied_and_awaited_and_its_output_is_returned() {
    let log = Log::default();
    let states = [State::Pending, waiting(), waiting(), State::Ready(7)];
    let step = Simulated::new(&log, "server", &states);

    let output = run(async |runner| runner.apply(&step, &()).await).await;

    assert_eq!(output.unwrap(), 7);
    assert_eq!(*log.borrow(), ["apply server"]);
    assert_eq!(
        progress::take_lines(),
        [
            "Creating server",
            "INFO: server created",
            "Waiting for server",
            "INFO: server ready"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_complete_step_writes_nothing_and_shows_the_same_lines() {
    let log = Log::default();
    let step = Simulated::new(&log, "server", &[State::Ready(7)]);

    run(async |runner| runner.apply(&step, &()).await)
        .await
        .unwrap();

    assert!(log.borrow().is_empty());
    assert_eq!(progress::take_lines().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_failure_names_the_failed_and_the_completed_steps() {
    let log = Log::default();
    let first = Simulated::new(&log, "server", &[State::Ready(7)]);
    let mut second = Simulated::new(&log, "client", &[State::Pending]);
    second.refusal = Some("forbidden");
    let third = Simulated::new(&log, "key", &[State::Pending]);

    let result = run(async |runner| {
        runner.apply(&first, &()).await?;
        runner.apply(&second, &()).await?;
        runner.apply(&third, &()).await
    })
    .await;

    assert_eq!(*log.borrow(), ["apply client"]);
    let text = format!("{:#}", result.unwrap_err());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "forbidden");
    assert_eq!(lines[1], "failed step: (local) Creating client");
    assert_eq!(lines[2], "completed steps: (local) Creating server");
    assert!(lines[3].contains("run the same command again"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_error_outside_of_the_steps_is_returned_unchanged() {
    let log = Log::default();
    let step = Simulated::new(&log, "server", &[State::Ready(7)]);

    let result: Result<()> = run(async |runner| {
        runner.apply(&step, &()).await?;
        Err(anyhow!("not confirmed"))
    })
    .await;

    assert_eq!(format!("{:#}", result.unwrap_err()), "not confirmed");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_command_repeats_no_completed_step() {
    let log = Log::default();
    let server = Simulated::new(&log, "server", &[State::Pending, State::Ready(7)]);
    let client = Simulated::new(&log, "client", &[State::Pending, waiting()]);
    let both = async || {
        run(async |runner| {
            runner.apply(&server, &()).await?;
            runner.apply(&client, &()).await
        })
        .await
    };

    // Ctrl-C drops the future.
    let interrupted = tokio::time::timeout(Duration::from_secs(1), both()).await;
    client.states.borrow_mut().push_back(State::Ready(8));
    client.states.borrow_mut().pop_front();
    let second = both().await;

    assert!(interrupted.is_err());
    assert_eq!(second.unwrap(), 8);
    assert_eq!(*log.borrow(), ["apply server", "apply client"]);
}

#[tokio::test(start_paused = true)]
async fn the_error_at_the_deadline_names_the_missing_part() {
    let log = Log::default();
    let step = Simulated::new(&log, "server", &[State::Pending, waiting()]);

    let result = run(async |runner| runner.apply(&step, &()).await).await;

    let text = format!("{:#}", result.unwrap_err());
    assert!(
        text.starts_with("creating it took longer than 9s: no address\nfailed step:"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_blocked_step_is_applied_once_its_objects_are_deleted() {
    let log = Log::default();
    let blocked = State::Blocked("still being deleted".to_owned());
    let states = [blocked.clone(), blocked, State::Pending, State::Ready(7)];
    let step = Simulated::new(&log, "server", &states);

    run(async |runner| runner.apply(&step, &()).await)
        .await
        .unwrap();

    assert_eq!(*log.borrow(), ["apply server"]);
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_while_a_step_waits_are_written_again() {
    let log = Log::default();
    let states = [
        State::Pending,
        waiting(),
        waiting(),
        State::Pending,
        State::Ready(7),
    ];
    let step = Simulated::new(&log, "server", &states);

    run(async |runner| runner.apply(&step, &()).await)
        .await
        .unwrap();

    assert_eq!(*log.borrow(), ["apply server", "apply server"]);
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_writer_are_written_once() {
    let log = Log::default();
    let step = Simulated::new(&log, "server", &[State::Pending]);

    let result = run(async |runner| runner.apply(&step, &()).await).await;

    assert_eq!(*log.borrow(), ["apply server"]);
    assert!(format!("{:#}", result.unwrap_err()).contains("does a webhook or another controller"),);
}

#[tokio::test(start_paused = true)]
async fn steps_are_undone_in_reverse_order() {
    let log = Log::default();
    let [first, second] = ["gateway server", "gateway client"]
        .map(|name| Simulated::new(&log, name, &[State::Ready(7)]));

    run(async |runner| {
        runner
            .undo(vec![first.undo(), None, second.undo()], true)
            .await
    })
    .await
    .unwrap();

    assert_eq!(
        *log.borrow(),
        [
            "delete gateway client",
            "remaining gateway client",
            "delete gateway server",
            "remaining gateway server"
        ]
    );
    assert_eq!(
        progress::take_lines(),
        [
            "Deleting gateway client",
            "INFO: Gateway client correctly deleted",
            "Deleting gateway server",
            "INFO: Gateway server correctly deleted"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_ends_the_removal_of_its_side() {
    let log = Log::default();
    let server = Simulated::new(&log, "gateway server", &[State::Ready(7)]);
    let mut client = Simulated::new(&log, "gateway client", &[State::Ready(7)]);
    client.refusal = Some("forbidden");

    let result = run(async |runner| {
        let steps = vec![server.undo(), client.undo()];
        runner.undo(steps, false).await
    })
    .await;

    assert_eq!(*log.borrow(), ["delete gateway client"]);
    let text = format!("{:#}", result.unwrap_err());
    assert!(
        text.starts_with("forbidden\nfailed step: (local) Deleting gateway client\n"),
        "{text}"
    );
}

#[test]
fn removals_are_reported_as_upstream_does() {
    assert_eq!(
        removed("gateway client", true),
        "Gateway client correctly deleted"
    );
    assert_eq!(removed("gateways", false), "Gateways already deleted");
    assert_eq!(removed("", false), " already deleted");
}
