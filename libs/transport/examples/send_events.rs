//! Sends events. `SVC_BASE_URL` and `SVC_API_KEY` configure it.

use transport::{HttpTransport, HttpTransportConfig, Metadata, Transport, TransportError, UdmEvent};

#[tokio::main]
async fn main() -> Result<(), TransportError> {
    let transport = HttpTransport::new(HttpTransportConfig::from_env()?);
    // Reports a wrong address at the start. Without it, the first send connects. It does not verify the key.
    transport.connect().await?;

    let event = UdmEvent::new("firewall-7").with_metadata(Metadata::new("USER_LOGIN"));
    let accepted = transport.send(&event).await.into_result()?;
    println!("{} is stored", accepted.event_id);

    // A batch can have any length. With an id of the producer, sending an event again is safe.
    let events = [UdmEvent::new("firewall-7"), UdmEvent::new("firewall-8").with_event_id("boot-42")];
    let batch = transport.send_batch(&events).await;
    println!("{} of {} are stored", batch.successful_events, batch.total_events);
    for failed in batch.results.iter().filter(|result| !result.success) {
        eprintln!("{} is not stored: {:?}", failed.event_id, failed.error);
    }
    batch.into_result()?;
    transport.disconnect().await;
    Ok(())
}
