//! The pages as HTML, which needs no other file.

use crate::cart::Line;
use crate::message::{Ad, Money, Order, Product};
use crate::rpc::Served;

const STYLE: &str = include_str!("style.css");

/// Replaces the special characters of HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }

    escaped
}

/// Returns a complete page. `currencies` are the selectable ones and the chosen one.
pub(super) fn page(
    title: &str,
    content: &str,
    (currencies, chosen): (&[String], &str),
    served: &Served,
) -> String {
    let title = escape(title);
    let options = currencies.iter().map(|code| {
        let selected = if code == chosen { " selected" } else { "" };
        format!("<option{selected}>{}</option>", escape(code))
    });
    let options: String = options.collect();

    format!(
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - Border Shop</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><header><a class="brand" href="/">Border Shop</a><form method="post" action="/currency">
<select name="currency">{options}</select><button>Change</button></form><a href="/cart">Cart</a></header>
<main><h1>{title}</h1>{content}</main>
<footer><h2>This page was served by</h2><ul class="places">{}</ul></footer></body></html>
"#,
        places(served)
    )
}

fn places(served: &Served) -> String {
    let place = |(service, place): (&String, &Result<_, String>)| {
        let service = escape(service);
        match place {
            Ok(crate::place::Place { pod, node, cluster }) => {
                let class = if cluster == "local" {
                    "local"
                } else {
                    "remote"
                };
                let [pod, node, cluster] = [pod, node, cluster].map(|it| escape(it));
                format!(
                    r#"<li class="{class}"><b>{service}</b><span class="cluster">{cluster}</span><br>{node}<br>{pod}</li>"#
                )
            }
            Err(error) => format!(
                r#"<li class="failed"><b>{service}</b><span class="cluster">failed</span><br>{}</li>"#,
                escape(error)
            ),
        }
    };

    served.iter().map(place).collect()
}

/// Returns a short text.
pub(super) fn note(text: &str) -> String {
    format!(r#"<p class="note">{}</p>"#, escape(text))
}

/// Returns the message of an error.
pub(super) fn error(message: &str) -> String {
    format!(r#"<p class="error">{}</p>"#, escape(message))
}

/// Returns an advertisement.
pub(super) fn ad(ad: &Ad) -> String {
    let (id, text) = (escape(&ad.product_id), escape(&ad.text));

    format!(r#"<p class="ad">Advertisement: <a href="/product/{id}">{text}</a></p>"#)
}

/// Returns a grid of products.
pub(super) fn products(products: &[Product]) -> String {
    let tile = |product: &Product| {
        let (id, name) = (escape(&product.id), escape(&product.name));
        format!(
            r#"<a class="tile" href="/product/{id}">{}<b>{name}</b><br>{}</a>"#,
            picture(product),
            price(product)
        )
    };
    let tiles: String = products.iter().map(tile).collect();

    format!(r#"<div class="grid">{tiles}</div>"#)
}

/// Returns the details of a product, with a form that adds it to the cart.
pub(super) fn product(product: &Product) -> String {
    let (id, description) = (escape(&product.id), escape(&product.description));

    format!(
        r#"<div class="detail">{}<div><p class="price">{}</p><p>{description}</p>
<form method="post" action="/cart"><input type="hidden" name="product_id" value="{id}">
<select name="quantity"><option>1<option>2<option>3<option>5<option>10</select>
<button>Add to cart</button></form></div></div>"#,
        picture(product),
        price(product)
    )
}

/// Returns a picture in a colour of the product's own: its first letter.
fn picture(product: &Product) -> String {
    let hue = product
        .id
        .bytes()
        .fold(0u16, |hue, byte| (hue * 31 + u16::from(byte) * 47) % 360);
    let letter = escape(&product.name.chars().take(1).collect::<String>());

    format!(r#"<span class="picture" style="--hue:{hue}">{letter}</span>"#)
}

fn price(product: &Product) -> String {
    escape(&product.price.clone().unwrap_or_default().to_string())
}

/// Returns the content of a cart, with the form of the checkout.
pub(super) fn cart(lines: &[Line], shipping: &Money, total: &Money) -> String {
    let row = |line: &Line| {
        let (quantity, name) = (line.quantity, escape(&line.product.name));
        let price = escape(&line.price.to_string());
        format!("<tr><td>{quantity} x {name}<td>{price}</tr>")
    };
    let rows: String = lines.iter().map(row).collect();
    let [shipping, total] = [shipping, total].map(|it| escape(&it.to_string()));

    format!(
        r#"<table>{rows}<tr><td>Shipping<td>{shipping}</tr><tr class="total"><td>Total<td>{total}</tr></table>
<form method="post" action="/cart/empty"><button class="plain">Empty the cart</button></form>
<h2>Checkout</h2><form class="checkout" method="post" action="/cart/checkout">
<label>Email <input name="email" type="email" value="someone@example.com" required></label>
<label>Address <input name="address" value="Piazza 1, Rome" required></label>
<label>Credit card <input name="card" value="4111 1111 1111 1111" required></label>
<button>Place order</button></form>"#
    )
}

/// Returns the confirmation of an order.
pub(super) fn order(order: &Order) -> String {
    let (id, tracking) = (escape(&order.id), escape(&order.tracking_id));
    let total = escape(&order.total.clone().unwrap_or_default().to_string());
    let warning = match order.warning.as_str() {
        "" => String::new(),
        warning => note(&format!("The order is paid, but a step failed: {warning}.")),
    };

    format!(
        r#"<p>Thank you. The order is complete.</p><table data-order="{id}"><tr><td>Order<td>{id}</tr>
<tr><td>Tracking<td>{tracking}</tr><tr class="total"><td>Charged<td>{total}</tr></table>{warning}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    #[test]
    fn texts_of_users_and_services_are_escaped() {
        let script = "<script>'\"&".to_owned();
        let served = [
            (
                "a".to_owned(),
                Place::parse("pod/node/milan").ok_or_else(String::new),
            ),
            ("b".to_owned(), Err(script.clone())),
        ];
        let order = Order {
            warning: script.clone(),
            ..Order::default()
        };

        let content = error(&script) + &super::order(&order);
        let page = page(
            &script,
            &content,
            (std::slice::from_ref(&script), "EUR"),
            &served.into(),
        );

        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;&#39;&quot;&amp;").count(), 6);
        assert!(page.contains(r#"<li class="remote"><b>a</b>"#), "{page}");
    }
}
