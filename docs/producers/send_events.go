// Sends the events on standard input, one JSON object per line. Needs Go 1.21 and no package.
//
// Sends the bytes of each line, and adds an id to an event without one. SVC_BASE_URL and SVC_API_KEY configure it. Prints the errors
// of lines that are no events and of rejected events, sends all others, and then exits with 1.
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
	"regexp"
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
	eventID   = regexp.MustCompile("^[A-Za-z0-9._:/+=-]{1,128}$")
)

type event struct {
	id   string
	line []byte
}

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
	for _, event := range events {
		compressed.Write(append(event.line, '\n'))
	}
	compressed.Close()
	request, err := http.NewRequest("POST", strings.TrimRight(os.Getenv("SVC_BASE_URL"), "/")+"/api/v1/events/batch", &body)
	if err != nil {
		return all(events, err.Error(), false), 0
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SVC_API_KEY"))
	request.Header.Set("Content-Type", "application/x-ndjson")
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

func newID() string {
	id := make([]byte, 16)
	rand.Read(id)
	return fmt.Sprintf("%x", id)
}

// parse returns the event of a line. It adds an id unless the event has one.
func parse(line []byte) (event, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if first, err := decoder.Token(); err != nil {
		return event{}, err
	} else if first != json.Delim('{') {
		return event{}, errors.New("not an object")
	}
	start := decoder.InputOffset()
	end, id := start, newID()
	added := `"event_id":"` + id + `"`
	if decoder.More() {
		added += ","
	}
	var found, metadataID string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return event{}, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return event{}, err
		}
		switch name {
		// Both names are the same field.
		case "event_id", "eventId":
			if found = string(value); found == "null" {
				end, added, found = decoder.InputOffset(), `"`+id+`"`, ""
				start = end - int64(len("null"))
			}
		case "metadata":
			var metadata map[string]json.RawMessage
			json.Unmarshal(value, &metadata)
			json.Unmarshal(metadata["id"], &metadataID)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return event{}, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return event{}, errors.New("more than one value")
	}
	if found != "" {
		return event{strings.Trim(found, `"`), line}, nil
	}
	if eventID.MatchString(metadataID) {
		// The service uses it as the id of the event.
		return event{metadataID, line}, nil
	}
	return event{id, []byte(string(line[:start]) + added + string(line[end:]))}, nil
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
		next, err := parse(bytes.TrimSpace(line))
		if err != nil {
			fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
			invalid = true
			continue
		}
		if len(events) == maxEvents || len(events) > 0 && size+len(next.line) > maxBytes {
			rejected = append(rejected, send(events)...)
			events, size = nil, 0
		}
		events, size = append(events, next), size+len(next.line)
	}
	if len(events) > 0 {
		rejected = append(rejected, send(events)...)
	}
	for _, result := range rejected {
		fmt.Fprintln(os.Stderr, result.event.id, result.Code, result.Message)
	}
	if invalid || len(rejected) > 0 {
		os.Exit(1)
	}
}
