// Prints the events of a durable consumer. Needs Go 1.26; go.mod names its packages.
//
// NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it.
package main

import (
	"context"
	"crypto/rand"
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
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const maxPayload = 100_000

// Other users of the broker cannot guess the message ids of dead letters, which would suppress them.
var runID = rand.Text()

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
	message.Data = event.Data()
	for header, values := range event.Headers() {
		if !strings.HasPrefix(header, "Nats-") {
			message.Header[header] = values
		}
	}
	message.Header.Set("Nats-Msg-Id", fmt.Sprintf("%s-%s-%d-%s", name, metadata.Stream, metadata.Sequence.Stream, runID))
	message.Header.Set("Udm-Dlq-Reason", reason.Error())
	message.Header.Set("Udm-Dlq-Attempts", strconv.FormatUint(metadata.NumDelivered, 10))
	_, err = stream.PublishMsg(ctx, message)
	return err
}

func run(ctx context.Context) error {
	name := os.Getenv("NATS_USER")
	broker, err := nats.Connect(os.Getenv("NATS_URL"),
		nats.UserInfo(name, os.Getenv("NATS_PASSWORD")), nats.CustomInboxPrefix("_INBOX."+name))
	if err != nil {
		return err
	}
	defer broker.Close()
	stream, err := jetstream.NewWithAPIPrefix(broker, "JS.API")
	if err != nil {
		return err
	}
	consumer, err := stream.Consumer(ctx, "UDM", name)
	if err != nil {
		return err
	}
	types, err := eventTypes(consumer)
	if err != nil {
		return err
	}
	events, err := consumer.Messages(jetstream.PullMaxMessages(100))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, events.Stop)
	for {
		event, err := events.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue
		}
		if err != nil {
			return err
		}
		replayFor := event.Headers().Get("Udm-Replay-For")
		isForThis := replayFor == "" || replayFor == name
		isSelected := len(types) == 0 || slices.Contains(types, event.Headers().Get("ce-type"))
		if isForThis && isSelected {
			err = handle(event)
		}
		if errors.Is(err, errRejected) {
			err = deadLetter(ctx, stream, name, event, err)
		}
		if err != nil {
			// Without an acknowledgement, the event is delivered again after 30 s.
			log.Print(err)
			continue
		}
		if err := event.Ack(); err != nil {
			log.Print(err)
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
