// Sends the events on standard input, one JSON object per line. Needs Go 1.21 and no package.
//
// SVC_BASE_URL and SVC_API_KEY configure it. Prints the errors of lines that are no events and of rejected events, sends all
// others, and then exits with 1.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxEvents = 500
	maxBytes  = 4 << 20
	// The service detects a repeated event for 120 s.
	retryTime = 100 * time.Second
)

var (
	client    = http.Client{Timeout: 30 * time.Second}
	temporary = []int{408, 429, 502, 503, 504}
)

type event = map[string]any

type result struct {
	Index     int    `json:"index"`
	Status    string `json:"status"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	event     event
}

// post returns the events that were not accepted, and the time of Retry-After.
func post(events []event) ([]result, time.Duration) {
	var body bytes.Buffer
	compressed := gzip.NewWriter(&body)
	json.NewEncoder(compressed).Encode(events)
	compressed.Close()
	request, err := http.NewRequest("POST", strings.TrimRight(os.Getenv("SVC_BASE_URL"), "/")+"/api/v1/events/batch", &body)
	if err != nil {
		return all(events, err.Error(), false), 0
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SVC_API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Content-Encoding", "gzip")
	response, err := client.Do(request)
	if err != nil {
		return all(events, err.Error(), true), 0
	}
	defer response.Body.Close()
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	retryAfter := time.Duration(min(seconds, 60)) * time.Second
	var batch struct {
		Results []result `json:"results"`
		Detail  string   `json:"detail"`
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || json.Unmarshal(text, &batch) != nil || batch.Results == nil {
		message := fmt.Sprint("HTTP ", response.StatusCode, " ", batch.Detail)
		return all(events, message, err != nil || slices.Contains(temporary, response.StatusCode)), retryAfter
	}
	var failed []result
	for _, result := range batch.Results {
		if result.event = events[result.Index]; result.Status == "rejected" {
			failed = append(failed, result)
		}
	}
	return failed, retryAfter
}

func all(events []event, message string, retryable bool) (failed []result) {
	for _, event := range events {
		failed = append(failed, result{Message: message, Retryable: retryable, event: event})
	}
	return failed
}

// send sends a batch and retries temporary errors with the same ids. It returns the rejected events.
func send(events []event) (rejected []result) {
	started := time.Now()
	for jitter := 250 * time.Millisecond; ; jitter = min(2*jitter, 30*time.Second) {
		failed, retryAfter := post(events)
		pause := retryAfter + time.Duration(mathrand.Int63n(int64(jitter)))
		last := time.Since(started)+pause > retryTime
		events = nil
		for _, result := range failed {
			if result.Retryable && !last {
				events = append(events, result.event)
			} else {
				rejected = append(rejected, result)
			}
		}
		if len(events) == 0 {
			return rejected
		}
		time.Sleep(pause)
		if time.Since(started) > retryTime {
			// The process was suspended: the service could store the events twice.
			for _, event := range events {
				rejected = append(rejected, result{Message: "not sent again", Retryable: true, event: event})
			}
			return rejected
		}
	}
}

// idName returns the name of the id: event_id and eventId are the same field.
func idName(of event) string {
	if _, found := of["eventId"]; found {
		return "eventId"
	}
	return "event_id"
}

func newID() string {
	id := make([]byte, 16)
	rand.Read(id)
	return fmt.Sprintf("%x", id)
}

// parse returns the event of a line.
func parse(line []byte) (event, error) {
	var next event
	decoder := json.NewDecoder(bytes.NewReader(line))
	// json.Number keeps the digits of the sender.
	decoder.UseNumber()
	err := decoder.Decode(&next)
	if err == nil && next == nil {
		err = errors.New("not an object")
	}
	if err == nil && decoder.Decode(new(any)) != io.EOF {
		err = errors.New("more than one value")
	}
	return next, err
}

func main() {
	var events []event
	var rejected []result
	size := 0
	lines := bufio.NewReader(os.Stdin)
	invalid := false
	for number, last := 1, false; !last; number++ {
		line, err := lines.ReadBytes('\n')
		// After a read error the rest is missing.
		if last = err != nil; last && err != io.EOF {
			fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
			invalid = true
			break
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		next, err := parse(line)
		if err != nil {
			fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
			invalid = true
			continue
		}
		if len(events) == maxEvents || size+len(line) > maxBytes {
			rejected = append(rejected, send(events)...)
			events, size = nil, 0
		}
		if id := idName(next); next[id] == nil {
			next[id] = newID()
		}
		events, size = append(events, next), size+len(line)
	}
	if len(events) > 0 {
		rejected = append(rejected, send(events)...)
	}
	for _, result := range rejected {
		fmt.Fprintln(os.Stderr, result.event[idName(result.event)], result.Code, result.Message)
	}
	if invalid || len(rejected) > 0 {
		os.Exit(1)
	}
}
