//! A request of a browser, with the session and the currency of its cookies.

use super::html;
use crate::message::{
    CONVERT, Conversion, Empty, GET_ADS, GET_CURRENCIES, LIST_PRODUCTS, LIST_RECOMMENDATIONS,
    Money, Product, Text, Texts,
};
use crate::place::Place;
use crate::role::Role;
use crate::rpc::{Calls, Clients};
use crate::{money, random};
use axum::extract::FromRequestParts;
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, Html, IntoResponse as _, Response};
use std::convert::Infallible;
use tonic::{Code, Status};

/// A successful response.
pub(super) enum Reply {
    /// Title and content of a page.
    Page(String, String),
    /// The path that the browser requests next.
    Redirect(&'static str),
}

impl Reply {
    /// Creates a page. The title may contain special characters of HTML, and `content` is HTML.
    pub(super) fn page(title: &str, content: String) -> Self {
        Self::Page(title.to_owned(), content)
    }
}

/// A request of a browser.
pub(super) struct Visit {
    /// The calls of services for this request.
    pub(super) calls: Calls,
    session: String,
    currency: &'static str,
}

impl FromRequestParts<Clients> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, clients: &Clients) -> Result<Self, Infallible> {
        let session = cookie(&parts.headers, "session").filter(|it| is_session(it));
        let currency = cookie(&parts.headers, "currency");
        let currency = currency.and_then(|code| money::find(code).ok());

        Ok(Self {
            calls: Calls::new(clients.clone()),
            session: session.map_or_else(random::id, str::to_owned),
            currency: currency.map_or("EUR", |currency| currency.code),
        })
    }
}

impl Visit {
    /// Returns the identifier of the session.
    pub(super) fn session(&self) -> Text {
        Text {
            text: self.session.clone(),
        }
    }

    /// Returns the code of the chosen currency.
    pub(super) fn currency(&self) -> &'static str {
        self.currency
    }

    /// Changes the currency of this and later requests.
    pub(super) fn choose(&mut self, code: &str) -> Result<(), Status> {
        self.currency = money::find(code)?.code;
        Ok(())
    }

    /// Returns all products with prices in the chosen currency.
    pub(super) async fn products(&self) -> Result<Vec<Product>, Status> {
        let mut products = self.calls.call(LIST_PRODUCTS, Empty {}).await?.products;
        let prices = products.iter().flat_map(|product| product.price.clone());
        let prices = self.convert(prices.collect()).await?;
        for (product, price) in products.iter_mut().zip(prices) {
            product.price = Some(price);
        }

        Ok(products)
    }

    /// Converts amounts to the chosen currency.
    pub(super) async fn convert(&self, amounts: Vec<Money>) -> Result<Vec<Money>, Status> {
        let conversion = Conversion {
            amounts,
            currency: self.currency.to_owned(),
        };

        Ok(self.calls.call(CONVERT, conversion).await?.amounts)
    }

    /// Returns an advertisement as HTML. It is optional, so an error is part of the page.
    pub(super) async fn ad(&self, category: &str) -> String {
        let categories = Texts {
            texts: vec![category.to_owned()],
        };

        match self.calls.call(GET_ADS, categories).await {
            Ok(ad) => html::ad(&ad),
            Err(status) => html::note(&format!("No advertisement: {}.", status.message())),
        }
    }

    /// Returns recommendations as HTML, without products that are `known` to the user. They are
    /// optional, so an error is part of the page.
    pub(super) async fn recommendations(&self, known: Vec<String>, products: &[Product]) -> String {
        let known = Texts { texts: known };
        match self.calls.call(LIST_RECOMMENDATIONS, known).await {
            Ok(ids) => {
                let is_recommended = |product: &&Product| ids.texts.contains(&product.id);
                let recommended = products.iter().filter(is_recommended).cloned();
                let recommended: Vec<_> = recommended.collect();
                format!("<h2>You may also like</h2>{}", html::products(&recommended))
            }
            Err(status) => html::note(&format!("No recommendations: {}.", status.message())),
        }
    }

    /// Creates the response of a page. It sets the cookies, and shows where the services run.
    pub(super) async fn show(&self, page: impl Future<Output = Result<Reply, Status>>) -> Response {
        let (page, currencies) = tokio::join!(page, self.calls.call(GET_CURRENCIES, Empty {}));
        let cookies = [
            ("session", self.session.as_str()),
            ("currency", self.currency),
        ];
        let cookies = cookies.map(|(name, value)| {
            let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax");
            (SET_COOKIE, cookie)
        });
        let cookies = AppendHeaders(cookies);
        let (code, title, content) = match page {
            Ok(Reply::Page(title, content)) => (StatusCode::OK, title, content),
            Ok(Reply::Redirect(path)) => {
                return (StatusCode::SEE_OTHER, cookies, [(LOCATION, path)]).into_response();
            }
            Err(status) => {
                let message = status.message();
                eprintln!("error: {message:?}");
                (
                    http(status.code()),
                    "Error".to_owned(),
                    html::error(message),
                )
            }
        };
        let mut served = self.calls.served();
        let own = Ok(Place::of_this_process());
        served.insert(Role::Frontend.name().to_owned(), own);
        // Only the selection of the currency is missing without the list.
        let currencies = currencies.map_or_else(|_| vec![], |it| it.texts);
        let page = html::page(&title, &content, (&currencies, self.currency), &served);

        (code, cookies, Html(page)).into_response()
    }
}

/// Returns the HTTP status of a service's status. A failed service is an error of this server.
fn http(code: Code) -> StatusCode {
    if code == Code::NotFound {
        StatusCode::NOT_FOUND
    } else if [Code::InvalidArgument, Code::FailedPrecondition].contains(&code) {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let headers = headers.get_all(COOKIE).into_iter();
    let mut cookies = headers
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(';'));

    cookies.find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
}

fn is_session(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
