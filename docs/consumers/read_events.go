// Prints the events of a durable consumer. Needs Go 1.26; go.mod names its packages.
//
// NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it. Several
// processes can share the events of a consumer.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	maxPayload = 100_000
	// Larger events remain in their stream, and a dead letter refers to them.
	maxCopy = 4096
	// Few, because the events of a batch wait for each other.
	batchSize = 10
	// Time until an event that could not be handled is delivered again.
	retryDelay = 30 * time.Second
)

// errRejected means that no attempt can succeed.
var errRejected = errors.New("too large for this consumer")

// Replace this. An event that was handled before is delivered again after a crash.
func handle(event jetstream.Msg) error {
	if len(event.Data()) > maxPayload {
		return errRejected
	}
	source, err := url.PathUnescape(event.Headers().Get("ce-source"))
	if err != nil {
		return err
	}
	headers := event.Headers()
	fmt.Println(tenant(event), source, headers.Get("ce-id"), headers.Get("ce-type"))
	return nil
}

func tenant(event jetstream.Msg) string {
	return strings.Split(event.Subject(), ".")[3]
}

// eventTypes returns the types that the durable is for, or none for all. Events of other types can have the subject of
// GENERIC_EVENT.
func eventTypes(consumer jetstream.Consumer) ([]string, error) {
	var definition struct {
		EventTypes []string `json:"event_types"`
	}
	text := consumer.CachedInfo().Config.Metadata["svc-definition"]
	if text == "" {
		return nil, nil
	}
	err := json.Unmarshal([]byte(text), &definition)
	return definition.EventTypes, err
}

// deadLetter keeps the event for `svc events dlq`. It returns after the event is stored.
func deadLetter(ctx context.Context, stream jetstream.JetStream, name string, event jetstream.Msg, reason error) error {
	metadata, err := event.Metadata()
	if err != nil {
		return err
	}
	message := nats.NewMsg("udm.dlq.v1." + tenant(event) + "." + name)
	if len(event.Data()) <= maxCopy {
		message.Data = event.Data()
	}
	for header, values := range event.Headers() {
		if !strings.HasPrefix(header, "Nats-") {
			message.Header[header] = values
		}
	}
	message.Header.Set("Nats-Msg-Id", fmt.Sprintf("%s-%s-%d", name, metadata.Stream, metadata.Sequence.Stream))
	message.Header.Set("Udm-Dlq-Stream", metadata.Stream)
	message.Header.Set("Udm-Dlq-Sequence", strconv.FormatUint(metadata.Sequence.Stream, 10))
	message.Header.Set("Udm-Dlq-Reason", fmt.Sprintf("%.500s", reason))
	message.Header.Set("Udm-Dlq-Attempts", strconv.FormatUint(metadata.NumDelivered, 10))
	_, err = stream.PublishMsg(ctx, message)
	return err
}

// reader handles the events of one durable.
type reader struct {
	name    string
	stream  jetstream.JetStream
	types   []string
	ackWait time.Duration
}

// process handles an event and acknowledges it, or lets the broker deliver it again.
func (r *reader) process(event jetstream.Msg) error {
	replayFor := event.Headers().Get("Udm-Replay-For")
	isForThis := replayFor == "" || replayFor == r.name
	isSelected := len(r.types) == 0 || slices.Contains(r.types, event.Headers().Get("ce-type"))
	var err error
	if isForThis && isSelected {
		err = handle(event)
	}
	if errors.Is(err, errRejected) {
		// Fails for example if the tenant has too many dead letters. The event remains, and others are handled.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = deadLetter(ctx, r.stream, r.name, event, err)
		cancel()
	}
	if err != nil {
		log.Print(err)
		return event.NakWithDelay(retryDelay)
	}
	// Also while the broker restarts.
	for end := time.Now().Add(r.ackWait); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = event.DoubleAck(ctx)
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			return nil
		}
	}
	return err
}

// processAll handles the events of a batch and extends the time for their acknowledgements.
func (r *reader) processAll(ctx context.Context, batch []jetstream.Msg) {
	var done atomic.Int64
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		tick := time.NewTicker(r.ackWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-finished:
				return
			case <-tick.C:
				for _, event := range batch[done.Load():] {
					_ = event.InProgress()
				}
			}
		}
	}()
	for _, event := range batch {
		var err error
		if ctx.Err() != nil {
			// The rest is delivered again at once.
			err = event.Nak()
		} else {
			err = r.process(event)
		}
		if err != nil {
			// If the durable was reset, the rest is delivered again too.
			log.Print(err)
			return
		}
		done.Add(1)
	}
}

// next returns the events that wait, or the next one within two seconds.
func next(consumer jetstream.Consumer) ([]jetstream.Msg, error) {
	fetched, err := consumer.FetchNoWait(batchSize)
	if err != nil {
		return nil, err
	}
	var batch []jetstream.Msg
	for event := range fetched.Messages() {
		batch = append(batch, event)
	}
	if len(batch) > 0 || fetched.Error() != nil {
		return batch, fetched.Error()
	}
	event, err := consumer.Next(jetstream.FetchMaxWait(2 * time.Second))
	if errors.Is(err, nats.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []jetstream.Msg{event}, nil
}

func run(ctx context.Context) error {
	name := os.Getenv("NATS_USER")
	// Without a limit of reconnections, the program survives an outage of the broker, and a login that is rejected for some time.
	broker, err := nats.Connect(os.Getenv("NATS_URL"), nats.UserInfo(name, os.Getenv("NATS_PASSWORD")),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort())
	if err != nil {
		return err
	}
	defer broker.Close()
	stream, err := jetstream.New(broker)
	if err != nil {
		return err
	}
	consumer, err := stream.Consumer(ctx, cmp.Or(os.Getenv("NATS_STREAM"), "UDM"), name)
	if err != nil {
		return err
	}
	types, err := eventTypes(consumer)
	if err != nil {
		return err
	}
	reader := &reader{name: name, stream: stream, types: types, ackWait: consumer.CachedInfo().Config.AckWait}
	for ctx.Err() == nil {
		if broker.IsClosed() {
			return nats.ErrConnectionClosed
		}
		batch, err := next(consumer)
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
		reader.processAll(ctx, batch)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
