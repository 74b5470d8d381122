// Reads with the calls of nats.go that a program usually has, with default options. Exits with 1 if a call has another result.
//
// Usage: clients <filter of the durable>. NATS_URL, NATS_USER and NATS_PASSWORD are those of the consumer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const wait = 10 * time.Second

var (
	name   = os.Getenv("NATS_USER")
	failed bool
)

// expect checks that the result or the error of a call contains a text.
func expect(call, text string, result any, err error) {
	found := fmt.Sprint(result)
	if err != nil {
		found = err.Error()
	}
	if !strings.Contains(found, text) {
		failed = true
		fmt.Printf("%s: %q instead of %q\n", call, found, text)
	}
}

func fetched(subscription *nats.Subscription, err error) (string, error) {
	if err != nil {
		return "", err
	}
	events, err := subscription.Fetch(1, nats.MaxWait(wait))
	if err != nil {
		return "", err
	}
	return events[0].Header.Get("ce-id"), events[0].AckSync()
}

func next(consumer jetstream.Consumer, err error) (string, error) {
	if err != nil {
		return "", err
	}
	event, err := consumer.Next(jetstream.FetchMaxWait(wait))
	if err != nil {
		return "", err
	}
	return event.Headers().Get("ce-id"), event.DoubleAck(context.Background())
}

// old reads with the first API of JetStream.
func old(broker *nats.Conn, subject, noConsumer string) {
	stream, err := broker.JetStream()
	if err != nil {
		log.Fatal(err)
	}
	pull := func(call, subject, durable string, options ...nats.SubOpt) {
		id, err := fetched(stream.PullSubscribe(subject, durable, options...))
		expect(call, "event-", id, err)
	}
	pull("PullSubscribe with Bind", subject, "", nats.Bind("UDM", name))
	pull("PullSubscribe with a durable and Bind", subject, name, nats.Bind("UDM", name))
	pull("PullSubscribe with a durable and BindStream", subject, name, nats.BindStream("UDM"))
	pull("PullSubscribe with a durable", subject, name)
	push := func(call, expected string, options ...nats.SubOpt) {
		_, err := stream.SubscribeSync(subject, options...)
		expect(call, expected, "a subscription", err)
	}
	push("Subscribe with Bind", "must use pull subscribe", nats.Bind("UDM", name))
	push("Subscribe with a durable", "must use pull subscribe", nats.Durable(name))
	push("Subscribe", noConsumer)
	push("Subscribe with OrderedConsumer", noConsumer, nats.OrderedConsumer())
	_, err = stream.QueueSubscribeSync(subject, name, nats.BindStream("UDM"))
	expect("QueueSubscribe", "must use pull subscribe", "a subscription", err)
	for consumer := range stream.ConsumerNames("UDM") {
		expect("ConsumerNames", name, consumer, nil)
	}
}

// current reads with the package jetstream.
func current(broker *nats.Conn, subject, noConsumer string) {
	ctx := context.Background()
	client, err := jetstream.New(broker)
	if err != nil {
		log.Fatal(err)
	}
	id, err := next(client.Consumer(ctx, "UDM", name))
	expect("Consumer", "event-", id, err)
	stream, err := client.Stream(ctx, "UDM")
	if err != nil {
		log.Fatal(err)
	}
	id, err = next(stream.Consumer(ctx, name))
	expect("Stream.Consumer", "event-", id, err)
	id, err = next(stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, FilterSubject: subject}))
	expect("CreateOrUpdateConsumer", "event-", id, err)
	later := jetstream.ConsumerConfig{Durable: name, FilterSubject: subject, DeliverPolicy: jetstream.DeliverNewPolicy}
	id, err = next(stream.CreateOrUpdateConsumer(ctx, later))
	expect("CreateOrUpdateConsumer with another start", "event-", id, err)
	id, err = next(stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, FilterSubject: "udm.v1.>"}))
	expect("CreateOrUpdateConsumer with another filter", "consumer exists with another configuration", id, err)
	id, err = next(stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{}))
	expect("CreateOrUpdateConsumer without a name", noConsumer, id, err)
	id, err = next(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	expect("OrderedConsumer", noConsumer, id, err)
	consumers := stream.ConsumerNames(ctx)
	for consumer := range consumers.Name() {
		expect("ConsumerNames", name, consumer, consumers.Err())
	}
}

func main() {
	broker, err := nats.Connect(os.Getenv("NATS_URL"), nats.UserInfo(name, os.Getenv("NATS_PASSWORD")))
	if err != nil {
		log.Fatal(err)
	}
	noConsumer := fmt.Sprintf("login `%s` cannot create a consumer: read its durable `%s`", name, name)
	old(broker, os.Args[1], noConsumer)
	current(broker, os.Args[1], noConsumer)
	if failed {
		os.Exit(1)
	}
}
