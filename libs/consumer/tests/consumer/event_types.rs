//! A durable with event types: events of other types that have the subject of `GENERIC_EVENT` do not reach the handler.

use super::broker::{Broker, Log, Running};

#[tokio::test]
async fn the_handler_gets_all_events_of_the_types_of_the_durable_and_no_others() {
    let broker = Broker::start().await;
    broker.define(&["USER_LOGIN"]).await;
    broker.publish("own-subject", 1).await;
    for (number, event_type) in
        [(2, "USER_LOGIN"), (3, "INVENTED_3"), (4, "GENERIC_EVENT"), (5, "USER_LOGIN")]
    {
        broker.publish_generic("generic-subject", number, event_type).await;
    }
    broker.publish_generic("other-subject", 6, "USER_LOGOUT").await;
    let log = Log::default();
    let handled = log.clone();
    let _running = Running::start(broker.config(), move |event| {
        handled.add(&event);
        std::future::ready(Ok(()))
    });
    broker.wait_until_acknowledged(6).await;
    assert_eq!(log.of("generic-subject"), [2, 5]);
    assert_eq!((log.of("own-subject"), log.ids().len()), (vec![1], 3));
}
