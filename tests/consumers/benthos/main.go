// Reads with the input of Benthos, and writes each event to a file before it acknowledges it. The outputs of Benthos, its processors and
// the rest take a minute to compile.
//
// Usage: benthos <configuration with an `input`> <file of events>
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	_ "github.com/benthosdev/benthos/v4/public/components/nats"
	"github.com/benthosdev/benthos/v4/public/service"
)

func main() {
	log.Fatal(run(context.Background(), os.Args[1], os.Args[2]))
}

// run returns an error if it cannot continue.
func run(ctx context.Context, configuration, output string) error {
	text, err := os.ReadFile(configuration)
	if err != nil {
		return err
	}
	spec := service.NewConfigSpec().Field(service.NewInputField("input"))
	parsed, err := spec.ParseYAML(string(text), nil)
	if err != nil {
		return err
	}
	input, err := parsed.FieldInput("input")
	if err != nil {
		return err
	}
	events, err := os.Create(output)
	if err != nil {
		return err
	}
	for {
		batch, acknowledge, err := input.ReadBatch(ctx)
		if err != nil {
			return err
		}
		for _, event := range batch {
			payload, err := event.AsBytes()
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(events, "%s\n", payload); err != nil {
				return err
			}
		}
		if err := acknowledge(ctx, nil); err != nil {
			return err
		}
	}
}
