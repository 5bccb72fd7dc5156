//! Calls of other services.

use crate::place::Place;
use crate::role::Role;
use anyhow::{Context as _, Result};
use axum::http::uri::PathAndQuery;
use prost::Message;
use std::collections::BTreeMap;
use std::error::Error;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// The metadata key of a reply's places. Its values are `service/pod/node/cluster`, one for each
/// pod that took part in the request.
pub(crate) const SERVED_BY: &str = "served-by";

/// The interval and the time limit of HTTP/2 PING frames. They detect a connection to a pod that
/// disappeared without a TCP reset.
const PING: Duration = Duration::from_secs(2);

/// A remote procedure, with the types of its request and its reply.
pub(crate) struct Rpc<Q, A> {
    /// The service that implements the procedure.
    pub(crate) role: Role,
    /// The path of HTTP requests.
    pub(crate) path: &'static str,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q, A> Rpc<Q, A> {
    /// Creates a procedure whose path has the form `/package.Service/Method`.
    pub(crate) const fn new(role: Role, path: &'static str) -> Self {
        Self {
            role,
            path,
            types: PhantomData,
        }
    }
}

/// Connections to all services, which are established with the first call.
#[derive(Clone, Debug)]
pub(crate) struct Clients(Arc<BTreeMap<Role, (String, Channel)>>);

impl Clients {
    /// Creates the clients of all services.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid address.
    pub(crate) fn new() -> Result<Self> {
        let client = |role: Role| {
            let address = role.address();
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .with_context(|| format!("the address of {role}, {address:?}, is invalid"))?
                .connect_timeout(role.call_max())
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PING)
                .keep_alive_while_idle(true);

            Ok((role, (address, endpoint.connect_lazy())))
        };
        let clients: Result<_> = Role::GRPC.into_iter().map(client).collect();

        Ok(Self(Arc::new(clients?)))
    }
}

/// Services and their places, or the reasons for which they are unreachable.
pub(crate) type Served = BTreeMap<String, Result<Place, String>>;

/// The calls of one request. They collect the places of all pods that took part.
#[derive(Debug)]
pub(crate) struct Calls {
    clients: Clients,
    served: Mutex<Served>,
}

impl Calls {
    /// Creates an empty collection.
    pub(crate) fn new(clients: Clients) -> Self {
        Self {
            clients,
            served: Mutex::default(),
        }
    }

    /// Calls a service.
    ///
    /// # Errors
    ///
    /// Returns the status of the service, or [`tonic::Code::Unavailable`] with the name of the
    /// service if it is unreachable.
    pub(crate) async fn call<Q, A>(&self, rpc: Rpc<Q, A>, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let role = rpc.role;
        let Some((address, channel)) = self.clients.0.get(&role) else {
            return Err(Status::internal(format!("{role} does not speak gRPC")));
        };
        let exchange = async {
            let mut client = Grpc::new(channel.clone());
            let unready = |error| Status::unavailable(causes(&error));
            client.ready().await.map_err(unready)?;
            let path = PathAndQuery::from_static(rpc.path);
            let codec = ProstCodec::default();
            client.unary(Request::new(request), path, codec).await
        };
        let late = |_| Err(Status::unavailable("time limit of the call exceeded"));
        let outcome = timeout(role.call_max(), exchange)
            .await
            .unwrap_or_else(late);

        let metadata = match &outcome {
            Ok(response) => response.metadata(),
            Err(status) => status.metadata(),
        };
        let values = metadata.get_all(SERVED_BY);
        let values: Vec<_> = values.iter().filter_map(|it| it.to_str().ok()).collect();
        for value in &values {
            if let Some((service, place)) = value.split_once('/')
                && let Some(place) = Place::parse(place)
            {
                self.record(service, Ok(place));
            }
        }

        match outcome {
            Ok(response) => Ok(response.into_inner()),
            Err(status) if values.is_empty() => {
                // A reply of the service names its place, so the connection failed.
                let message = || status.message().to_owned();
                let cause = status.source().map_or_else(message, causes);
                let message = format!("{role} at {address} is unreachable: {cause}");
                self.record(role.name(), Err(message.clone()));
                Err(Status::unavailable(message))
            }
            Err(status) => Err(status),
        }
    }

    /// Records where a service runs, or the reason for which it is unreachable.
    pub(crate) fn record(&self, service: &str, place: Result<Place, String>) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.insert(service.to_owned(), place);
    }

    /// Returns the services that took part.
    pub(crate) fn served(&self) -> Served {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.clone()
    }
}

/// Returns the messages of an error and its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut messages = vec![error.to_string()];
    let mut error = error;
    while let Some(cause) = error.source() {
        messages.push(cause.to_string());
        error = cause;
    }
    messages.dedup();

    messages.join(": ")
}
