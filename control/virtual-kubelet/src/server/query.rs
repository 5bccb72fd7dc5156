//! Queries: those of a kubelet, and those of the API server of the provider.

use super::refusal::Refusal;
use k8s_openapi::jiff::Timestamp;
use percent_encoding::percent_decode_str;

/// Most ports of one request.
const PORTS_MAX: usize = 64;

/// The query of a request for a subresource of a pod.
pub(crate) type Query = Vec<(&'static str, String)>;

/// Returns the query for the log of a container.
///
/// # Errors
///
/// Returns a refusal that names the invalid parameter.
pub(crate) fn log(query: &str, container: &str) -> Result<Query, Refusal> {
    let mut options = container_of(container);
    for (name, value) in parameters(query)? {
        let (name, is_valid, expected) = match name.as_str() {
            "follow" => ("follow", boolean(&value).is_some(), "true or false"),
            "previous" => ("previous", boolean(&value).is_some(), "true or false"),
            "timestamps" => ("timestamps", boolean(&value).is_some(), "true or false"),
            "tailLines" => ("tailLines", is_from(&value, 0), "a number of lines"),
            "limitBytes" => (
                "limitBytes",
                is_from(&value, 1),
                "a positive number of bytes",
            ),
            "sinceSeconds" => (
                "sinceSeconds",
                is_from(&value, 1),
                "a positive number of seconds",
            ),
            "sinceTime" => (
                "sinceTime",
                value.parse::<Timestamp>().is_ok(),
                "a time by RFC 3339",
            ),
            "stream" => (
                "stream",
                matches!(value.as_str(), "All" | "Stdout" | "Stderr"),
                "All, Stdout or Stderr",
            ),
            _ => continue,
        };
        if !is_valid {
            return Err(Refusal::invalid(format!(
                "{name}: `{value}` is invalid: use {expected}"
            )));
        }
        set(&mut options, name, value);
    }

    Ok(options)
}

/// Returns whether the query of a log asks for what is written from now on, too.
pub(crate) fn is_followed(query: &Query) -> bool {
    let follow = query.iter().find(|(name, _)| *name == "follow");
    follow.and_then(|(_, value)| boolean(value)) == Some(true)
}

/// Returns the query to run a command in a container.
///
/// # Errors
///
/// Returns a refusal if the command or all streams are missing.
pub(crate) fn exec(query: &str, container: &str) -> Result<Query, Refusal> {
    let mut options = streams(query, container)?;
    let commands = parameters(query)?.into_iter();
    let commands = commands.filter(|(name, _)| name == "command");
    options.extend(commands.map(|(_, value)| ("command", value)));
    if options.iter().all(|(name, _)| *name != "command") {
        return Err(Refusal::invalid(
            "command: is missing: name a program to run",
        ));
    }

    Ok(options)
}

/// Returns the query to attach to the process of a container.
///
/// # Errors
///
/// Returns a refusal if all streams are missing.
pub(crate) fn attach(query: &str, container: &str) -> Result<Query, Refusal> {
    streams(query, container)
}

/// Returns the query to connect to ports of a pod. SPDY clients name the ports in their streams.
///
/// # Errors
///
/// Returns a refusal that names the invalid port.
pub(crate) fn port_forward(query: &str) -> Result<Query, Refusal> {
    let mut options = Query::new();
    for (name, value) in parameters(query)? {
        if !matches!(name.as_str(), "port" | "ports") {
            continue;
        }
        for port in value.split(',') {
            if port.parse::<u16>().map_or(true, |it| it == 0) {
                return Err(Refusal::invalid(format!(
                    "{name}: `{port}` is invalid: use 1 to 65535"
                )));
            }
            options.push(("ports", port.to_owned()));
        }
    }
    if options.len() > PORTS_MAX {
        return Err(Refusal::invalid(format!(
            "ports: there are more than {PORTS_MAX}"
        )));
    }

    Ok(options)
}

/// Translates the names of streams.
fn streams(query: &str, container: &str) -> Result<Query, Refusal> {
    let mut options = container_of(container);
    for (name, value) in parameters(query)? {
        let name = match name.as_str() {
            "input" => "stdin",
            "output" => "stdout",
            "error" => "stderr",
            "tty" => "tty",
            _ => continue,
        };
        if boolean(&value) == Some(true) {
            set(&mut options, name, "true".to_owned());
        }
    }
    if !options.iter().any(|(name, _)| name.starts_with("std")) {
        return Err(Refusal::invalid(
            "input, output and error: set at least one of them to 1",
        ));
    }

    Ok(options)
}

fn container_of(name: &str) -> Query {
    vec![("container", name.to_owned())]
}

/// Sets a parameter; the first value counts, as at a kubelet.
fn set(options: &mut Query, name: &'static str, value: String) {
    if options.iter().all(|(set, _)| *set != name) {
        options.push((name, value));
    }
}

/// Decodes a query.
fn parameters(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    });

    decoded.collect()
}

fn decode(text: &str) -> Result<String, Refusal> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map(std::borrow::Cow::into_owned);

    decoded.map_err(|_| Refusal::invalid("the query contains bytes that are not UTF-8"))
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn is_from(text: &str, least: i64) -> bool {
    text.parse::<i64>().is_ok_and(|it| it >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(query: Result<Query, Refusal>) -> String {
        let query = query.unwrap();
        let pairs = query.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("&")
    }

    #[test]
    fn all_options_of_logs_are_forwarded() {
        let query = "follow=true&previous=true&timestamps=true&tailLines=0&sinceSeconds=5&limitBytes=7&\
            sinceTime=2026-11-27T07%3A00%3A00Z&stream=Stdout";
        assert_eq!(
            joined(log(query, "web")),
            "container=web&follow=true&previous=true&timestamps=true&tailLines=0&sinceSeconds=5&limitBytes=7&\
             sinceTime=2026-11-27T07:00:00Z&stream=Stdout"
        );
        assert_eq!(joined(log("", "web")), "container=web");
        assert!(is_followed(&log("follow=1", "web").unwrap()));
        assert!(!is_followed(&log("follow=false", "web").unwrap()));
    }

    #[test]
    fn invalid_options_of_logs_are_refused_by_name() {
        for (query, name) in [
            ("tailLines=-1", "tailLines"),
            ("tailLines=ten", "tailLines"),
            ("limitBytes=0", "limitBytes"),
            ("sinceSeconds=0", "sinceSeconds"),
            ("sinceTime=yesterday", "sinceTime"),
            ("follow=maybe", "follow"),
            ("stream=Both", "stream"),
            ("tailLines=%ff", "not UTF-8"),
        ] {
            let refusal = log(query, "web").unwrap_err();
            assert_eq!(refusal.status, http::StatusCode::BAD_REQUEST);
            assert!(refusal.message.contains(name), "{}", refusal.message);
        }
    }

    #[test]
    fn the_names_of_streams_are_translated_and_commands_keep_their_order() {
        let query =
            "command=sh&input=1&output=1&error=1&tty=1&command=-c&command=echo+a%26container%3Db";
        assert_eq!(
            joined(exec(query, "web")),
            "container=web&stdin=true&stdout=true&stderr=true&tty=true&command=sh&command=-c&command=echo a&container=b"
        );
        assert_eq!(
            joined(attach("output=1&input=0&container=other", "web")),
            "container=web&stdout=true"
        );
    }

    #[test]
    fn a_command_and_a_stream_are_required() {
        let refusal = exec("output=1", "web").unwrap_err();
        assert!(refusal.message.starts_with("command"));
        for query in ["command=ls", "command=ls&tty=1", "command=ls&input=0"] {
            let refusal = exec(query, "web").unwrap_err();
            assert!(refusal.message.starts_with("input, output"), "{query}");
        }
    }

    #[test]
    fn ports_of_both_forms_are_forwarded_one_by_one() {
        assert_eq!(joined(port_forward("")), "");
        assert_eq!(
            joined(port_forward("port=80,443&ports=53")),
            "ports=80&ports=443&ports=53"
        );
        for query in ["port=0", "port=65536", "port=", "ports=80,x"] {
            assert!(
                port_forward(query)
                    .unwrap_err()
                    .message
                    .contains("1 to 65535")
            );
        }
        let many = ["1"; PORTS_MAX + 1].join(",");
        assert!(port_forward(&format!("port={many}")).is_err());
    }
}
