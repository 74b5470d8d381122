// Logs in by device code (RFC 8628) with golang.org/x/oauth2. The address of the API and the tenant are arguments.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"golang.org/x/oauth2"
)

func main() {
	api, tenant := os.Args[1], os.Args[2]
	config := oauth2.Config{
		// The name that the page shows. Clients are not registered.
		ClientID: "go-example",
		Endpoint: oauth2.Endpoint{
			DeviceAuthURL: api + "/auth/device/code",
			TokenURL:      api + "/auth/device/token",
			// Otherwise the library sends the first poll twice.
			AuthStyle: oauth2.AuthStyleInParams,
		},
	}
	ctx := context.Background()
	codes, err := config.DeviceAuth(ctx, oauth2.SetAuthURLParam("tenant_id", tenant))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Open", codes.VerificationURI, "and enter", codes.UserCode)
	token, err := config.DeviceAccessToken(ctx, codes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Token:", token.AccessToken)
}
