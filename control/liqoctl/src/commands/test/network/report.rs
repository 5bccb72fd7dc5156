//! The output of the test.

use super::execute::Outcome;
use super::plan::Caller;
use crate::cidrs::Cidrs;
use crate::pair::Side;
use anyhow::{Result, anyhow};
use control_api::{Network, labels};
use kube::Api;

/// Returns the CIDRs of a cluster, on one line.
///
/// # Errors
///
/// Returns an error if a Network or its status is missing.
pub(crate) async fn cidrs(id: &str, side: &Side) -> Result<String> {
    let api = Api::<Network>::namespaced(side.cluster.client.clone(), &side.liqo.namespace);
    let networks = side
        .cluster
        .list(&api, "Networks", labels::NETWORK_TYPE)
        .await?;
    let cidrs =
        Cidrs::of(&networks).map_err(|missing| anyhow!("{missing} in {}", side.cluster.place()))?;
    Ok(format!(
        "{id}: pod CIDR {}, external CIDR {}",
        cidrs.pod.join(", "),
        cidrs.external.join(", ")
    ))
}

/// Returns a table of all requests. PURE.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let head = ["CHECK", "FROM", "TO", "RESULT"].map(ToOwned::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head)
        .chain(outcomes.iter().map(row))
        .collect();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or_default() + 2
    };
    let widths = [width(0), width(1), width(2)];
    rows.iter()
        .map(|[check, from, to, result]| {
            let [a, b, c] = widths;
            format!("{check:<a$}{from:<b$}{to:<c$}{result}\n")
        })
        .collect()
}

fn row(outcome: &Outcome) -> [String; 4] {
    let call = &outcome.call;
    let from = match &call.caller {
        Caller::Pod(_, node) => node.clone(),
        Caller::Here => "this machine".to_owned(),
    };
    let result = match &outcome.failure {
        None => "ok".to_owned(),
        Some(reason) => format!("FAILED: {reason}"),
    };
    [
        call.check.to_owned(),
        from,
        format!("{} ({})", call.target, call.address),
        result,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::plan::Call;
    use super::*;

    #[test]
    fn the_row_of_a_failed_request_has_the_reason() {
        let outcome = Outcome {
            call: Call {
                check: "pod to pod",
                caller: Caller::Pod("p".into(), "rome-worker".into()),
                target: "milan/milan-worker".into(),
                address: "10.71.1.2:8080".into(),
            },
            failure: Some("timed out".into()),
        };

        let expected = "CHECK       FROM         TO                                   RESULT\n\
                        pod to pod  rome-worker  milan/milan-worker (10.71.1.2:8080)  FAILED: timed out\n";
        assert_eq!(table(&[outcome]), expected);
    }
}
