//! The carts, which are hashes in Redis that map products to quantities.

use crate::message::{Cart, Empty, Item, Text};
use crate::redis::{NAME, Redis};
use crate::resp::Reply;
use crate::rpc::Calls;
use std::sync::{Arc, LazyLock};
use tonic::Status;

/// Seconds after which Redis deletes a cart that has not changed.
const EXPIRY: &str = "3600";

/// The maximum number of products in a cart.
const PRODUCTS_MAX: i64 = 100;

/// The maximum number of pieces that one request adds.
const QUANTITY_MAX: u32 = 10;

/// The maximum length of identifiers.
const ID_MAX: usize = 64;

/// The connection that all requests share.
static REDIS: LazyLock<Redis> = LazyLock::new(Redis::new);

/// Adds items to a cart.
pub(super) async fn add(calls: Arc<Calls>, cart: Cart) -> Result<Empty, Status> {
    let key = key(&cart.session)?;
    for item in cart.items {
        if !(1..=QUANTITY_MAX).contains(&item.quantity) {
            let message = format!("the quantity is not between 1 and {QUANTITY_MAX}");
            return Err(Status::invalid_argument(message));
        }
        let product = checked(&item.product_id)?;
        let size = execute(&calls, &[&["HLEN", &key]]).await?;
        if size
            .iter()
            .any(|it| matches!(it, Reply::Integer(PRODUCTS_MAX..)))
        {
            return Err(Status::failed_precondition("the cart is full: empty it"));
        }
        let quantity = item.quantity.to_string();
        let commands: [&[&str]; 2] = [
            &["HINCRBY", &key, product, &quantity],
            &["EXPIRE", &key, EXPIRY],
        ];
        execute(&calls, &commands).await?;
    }

    Ok(Empty {})
}

/// Returns a cart, which is empty if it does not exist.
pub(super) async fn get(calls: Arc<Calls>, session: Text) -> Result<Cart, Status> {
    let key = key(&session.text)?;
    let replies = execute(&calls, &[&["HGETALL", &key]]).await?;
    let items = items(replies.first());

    Ok(Cart {
        session: session.text,
        items: items.ok_or_else(|| Status::data_loss(format!("{NAME} has an invalid cart")))?,
    })
}

/// Removes a cart.
pub(super) async fn empty(calls: Arc<Calls>, session: Text) -> Result<Empty, Status> {
    let key = key(&session.text)?;
    execute(&calls, &[&["DEL", &key]]).await?;

    Ok(Empty {})
}

async fn execute(calls: &Calls, commands: &[&[&str]]) -> Result<Vec<Reply>, Status> {
    let (replies, place) = REDIS.execute(commands).await?;
    if let Some(place) = place {
        calls.record(NAME, Ok(place));
    }

    Ok(replies)
}

/// Returns the items of a hash, sorted by product. Returns `None` if the hash is no cart.
fn items(hash: Option<&Reply>) -> Option<Vec<Item>> {
    let Some(Reply::Array(elements)) = hash else {
        return None;
    };
    let item = |pair: &[Reply]| match pair {
        [Reply::Text(product), Reply::Text(quantity)] => Some(Item {
            product_id: product.clone(),
            quantity: quantity.parse().ok()?,
        }),
        _ => None,
    };
    let mut items: Vec<_> = elements.chunks(2).map(item).collect::<Option<_>>()?;
    items.sort_by(|a, b| a.product_id.cmp(&b.product_id));

    Some(items)
}

fn key(session: &str) -> Result<String, Status> {
    Ok(format!("cart:{}", checked(session)?))
}

fn checked(id: &str) -> Result<&str, Status> {
    let is_valid = (1..=ID_MAX).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');

    is_valid
        .then_some(id)
        .ok_or_else(|| Status::invalid_argument("an identifier is not 1 to 64 letters or digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_a_sorted_cart() {
        let items = items(Some(&hash(&["pen", "2", "mug", "1"]))).unwrap();

        let shown: Vec<_> = items
            .iter()
            .map(|item| (item.product_id.as_str(), item.quantity))
            .collect();
        assert_eq!(shown, [("mug", 1), ("pen", 2)]);
    }

    #[test]
    fn invalid_hashes_are_no_carts() {
        assert_eq!(items(None), None);
        assert_eq!(items(Some(&Reply::Null)), None);
        for elements in [&["mug"][..], &["mug", "-1"], &["mug", "4294967296"]] {
            assert_eq!(items(Some(&hash(elements))), None, "{elements:?}");
        }
    }

    #[test]
    fn identifiers_have_no_special_characters() {
        assert!(checked("0a-Z").is_ok());
        for id in ["", "a b", "a\r\n", &"a".repeat(65)] {
            assert!(checked(id).is_err(), "{id:?}");
        }
    }

    fn hash(elements: &[&str]) -> Reply {
        let text = |element: &&str| Reply::Text((*element).to_owned());
        Reply::Array(elements.iter().map(text).collect())
    }
}
